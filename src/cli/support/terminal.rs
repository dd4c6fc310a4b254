//! The terminal itself: asks for secrets without echo, and keeps the keyboard off the progress bars.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, IsTerminal, Read, Write, stderr},
    os::fd::AsFd,
    sync::{Mutex, PoisonError},
};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use zeroize::Zeroizing;

use super::CliError;
use crate::report::sanitize;

const INTERRUPT: u8 = 3;
const END_OF_FILE: u8 = 4;
const ERASE_LINE: u8 = 21;

/// Asks on the terminal itself, so that it also works while standard input is a pipe. `None` means
/// that the person declined (Ctrl-C, Ctrl-D); an error, that there is no terminal.
pub fn ask_secret(question: &str) -> io::Result<Option<Zeroizing<String>>> {
    let mut terminal = File::options().read(true).write(true).open("/dev/tty")?;
    let answer = {
        // Before the question: an answer that comes at once must neither show nor be lost.
        let _silence = Silence::begin(terminal.try_clone()?)?;
        terminal.write_all(sanitize(question).as_bytes())?;
        read_line(&mut terminal)
    };
    terminal.write_all(b"\n")?;
    answer
}

/// Asks a question to which only `y` and `yes` are a yes. Where nobody can be asked, `instead` says how to do without.
pub fn confirm(question: &str, instead: &str) -> Result<bool, CliError> {
    let answer = ask(question, instead)?;
    Ok(matches!(answer.to_ascii_lowercase().as_str(), "y" | "yes"))
}

/// Asks for a line, which may be seen.
pub fn ask(question: &str, instead: &str) -> Result<String, CliError> {
    let mut terminal = match File::options().read(true).write(true).open("/dev/tty") {
        Ok(terminal) if stderr().is_terminal() => terminal,
        _ => {
            let message = "there is no terminal for the prompt, and nothing was changed";
            return Err(CliError::usage_with_help(message, Some(instead.to_owned())));
        }
    };
    terminal.write_all(sanitize(question).as_bytes())?;
    let mut answer = String::new();
    BufReader::new(terminal).read_line(&mut answer)?;
    Ok(answer.trim().to_owned())
}

/// Echo is off while this lives. Signals from the keyboard are off too: a Ctrl-C that killed us
/// here would leave the terminal mute.
struct Silence {
    terminal: File,
    before: Termios,
}

impl Silence {
    fn begin(terminal: File) -> io::Result<Self> {
        let before = tcgetattr(terminal.as_fd())?;
        let mut silent = before.clone();
        silent.local_modes -= LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG;
        tcsetattr(terminal.as_fd(), OptionalActions::Flush, &silent)?;
        Ok(Self { terminal, before })
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        // There is nothing left to try if the terminal is gone.
        let _ = tcsetattr(self.terminal.as_fd(), OptionalActions::Flush, &self.before);
    }
}

/// Keeps `^C` from being shown while bars are drawn: it would push them down by a line.
pub struct QuietKeys {
    before: Mutex<Option<Termios>>,
}

impl QuietKeys {
    /// Does nothing where standard error is no terminal.
    pub fn begin() -> Self {
        let before = tcgetattr(stderr()).ok();
        if let Some(before) = &before {
            let mut quiet = before.clone();
            quiet.local_modes -= LocalModes::ECHOCTL;
            let _ = tcsetattr(stderr(), OptionalActions::Now, &quiet);
        }
        Self { before: Mutex::new(before) }
    }

    pub fn end(&self) {
        let before = self.before.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(before) = before {
            let _ = tcsetattr(stderr(), OptionalActions::Now, &before);
        }
    }
}

impl Drop for QuietKeys {
    fn drop(&mut self) {
        self.end();
    }
}

fn read_line(input: &mut impl Read) -> io::Result<Option<Zeroizing<String>>> {
    // Room for any sane secret, so that growing leaves no copies behind.
    let mut line = Zeroizing::new(Vec::with_capacity(1024));
    let mut byte = [0];
    loop {
        if input.read(&mut byte)? == 0 {
            return Ok(None);
        }
        match byte[0] {
            b'\n' | b'\r' => break,
            INTERRUPT | END_OF_FILE => return Ok(None),
            ERASE_LINE => line.clear(),
            8 | 127 => erase_character(&mut line),
            other => line.push(other),
        }
    }
    let text = std::str::from_utf8(&line).map_err(|_| io::Error::other("the input is not UTF-8"))?;
    Ok(Some(Zeroizing::new(text.to_owned())))
}

/// Takes a whole UTF-8 character off the end.
fn erase_character(line: &mut Vec<u8>) {
    while let Some(byte) = line.pop() {
        if byte & 0b1100_0000 != 0b1000_0000 {
            break;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(keys: &[u8]) -> Option<String> {
        read_line(&mut &*keys).unwrap().map(|line| line.to_string())
    }

    #[test]
    fn keys_edit_the_line() {
        assert_eq!(typed(b"secret\n").as_deref(), Some("secret"));
        assert_eq!(typed("wrong\x15s\u{fc}\x7f\u{e4}x\x7f\r".as_bytes()).as_deref(), Some("s\u{e4}"));
        assert_eq!(typed(b"\n").as_deref(), Some(""));
    }

    #[test]
    fn leaving_is_declining() {
        assert_eq!(typed(b"sec\x03"), None);
        assert_eq!(typed(b"\x04"), None);
        assert_eq!(typed(b"no end"), None);
    }
}
