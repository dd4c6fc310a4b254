//! What one call of the program knows: its settings, and how it talks to the person who called.

use std::{
    env,
    io::{self, Write, stderr, stdout},
    sync::Arc,
};

use super::{
    CliError, Exit,
    args::{GlobalArgs, KeyArgs},
    config::Settings,
    planned::Planned,
    record::Resumed,
    shell::quote,
    terminal::ask_secret,
};
use crate::{
    model::Masker,
    report::{
        ColorChoice, Detail, Look, diagnostics_as_json, render_diagnostics, sanitize, sanitize_json, sanitize_painted,
    },
    secret::{Ask, KeyOptions, Keyring},
    source::{
        Diagnostics, Sources,
        disk::{self, Inputs},
    },
    state::Bundle,
};

#[derive(Debug)]
pub struct Invocation {
    pub settings: Settings,
    pub stdout: Look,
    pub stderr: Look,
    pub json: bool,
    /// With `--json` it prints one document, and no events.
    pub prints_document: bool,
    pub verbosity: u8,
    /// Keeps secrets out of all that is printed.
    pub masker: Masker,
    /// The command line, without the program's name.
    pub command: Vec<String>,
    /// The run that goes on, if this is not a new one.
    pub resumed: Option<Resumed>,
    /// The plan that is run.
    pub planned: Option<Planned>,
}

impl Invocation {
    /// Reads the configuration. Where that is wrong, there is still something to say so with.
    pub fn new(global: &GlobalArgs, command: Vec<String>, prints_document: bool) -> (Self, Result<(), CliError>) {
        let mut sources = Sources::default();
        let mut diagnostics = Diagnostics::default();
        let settings = Settings::load(&mut sources, &mut diagnostics);
        let choice = global.color.or(settings.color).unwrap_or(ColorChoice::Auto);
        let plain = global.plain || global.json || settings.plain;
        let invocation = Self {
            settings,
            stdout: Look::of_stdout(choice, plain),
            stderr: Look::of_stderr(choice, plain),
            json: global.json,
            prints_document,
            verbosity: global.verbose,
            masker: Masker::default(),
            command,
            resumed: None,
            planned: None,
        };
        start_log(invocation.masker.clone());
        if diagnostics.has_errors() {
            return (invocation, Err(CliError::Input(Box::new((diagnostics, sources)))));
        }
        invocation.show_problems(&diagnostics, &sources);
        (invocation, Ok(()))
    }

    /// The same call, with the command line and the settings of an earlier one.
    pub fn repeating(&self, bundle: Bundle) -> Self {
        let settings: Settings = serde_json::from_value(bundle.settings).unwrap_or_default();
        Self {
            settings: Settings { color: self.settings.color, ..settings },
            stdout: self.stdout,
            stderr: self.stderr,
            json: self.json,
            prints_document: self.prints_document,
            verbosity: self.verbosity,
            masker: self.masker.clone(),
            command: bundle.command,
            resumed: None,
            planned: None,
        }
    }

    /// The operator's keys; `may_ask` for passphrases.
    pub fn keyring(&self, args: &KeyArgs, may_ask: bool) -> Keyring {
        let settings = &self.settings;
        let named = if args.age_identity.is_empty() { &settings.age_identity } else { &args.age_identity };
        let ask: Ask = Arc::new(|question| ask_secret(question).ok().flatten());
        let options = KeyOptions {
            identities: named.clone(),
            passphrase_file: args.age_passphrase_file.clone().or_else(|| settings.age_passphrase_file.clone()),
            ask: may_ask.then_some(ask),
        };
        Keyring::new(options, self.masker.clone())
    }

    /// The command line, as one could type it again.
    pub fn as_typed(&self) -> String {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@+%".contains(c);
        let word = |word: &String| match !word.is_empty() && word.chars().all(plain) {
            true => word.clone(),
            false => quote(word),
        };
        std::iter::once("etcdrun".to_owned()).chain(self.command.iter().map(word)).collect::<Vec<_>>().join(" ")
    }

    pub fn detail(&self, diff: bool) -> Detail {
        Detail { verbosity: self.verbosity, diff }
    }

    /// Loads from the disk, or from what a run that goes on was loaded from.
    pub fn loading<T>(&self, work: impl FnOnce() -> T) -> (T, Inputs) {
        let kept = self.resumed.as_ref().map(|resumed| &resumed.inputs);
        match kept.or(self.planned.as_ref().map(|planned| &planned.inputs)) {
            Some(inputs) => (disk::replay(inputs.clone(), work), inputs.clone()),
            None => disk::record(work),
        }
    }

    /// Prints what the command was asked for: without secrets, and without anything that a terminal obeys but our own colours.
    pub fn print(&self, text: &str) -> Result<(), CliError> {
        let mut out = stdout().lock();
        let masked = self.masker.mask(text);
        let shown = if self.json { sanitize_json(&masked) } else { sanitize_painted(&masked, &self.stdout) };
        out.write_all(shown.as_bytes())?;
        Ok(out.flush()?)
    }

    /// Errors and warnings of the input: for people to standard error, for programs among the events. Warnings do not stand in front of
    /// a document, which would be none then.
    pub fn show_problems(&self, diagnostics: &Diagnostics, sources: &Sources) {
        if diagnostics.is_empty() {
            return;
        }
        let diagnostics = &diagnostics.masked(&self.masker);
        // Where not even problems can be shown, the exit code has to do.
        let _ = match self.json {
            true if self.prints_document && !diagnostics.has_errors() => {
                self.complain(&diagnostics_as_json(diagnostics, sources)).map_err(CliError::from)
            }
            true => self.print(&diagnostics_as_json(diagnostics, sources)),
            false => self.complain(&render_diagnostics(diagnostics, sources, &self.stderr)).map_err(CliError::from),
        };
    }

    fn complain(&self, text: &str) -> io::Result<()> {
        stderr().lock().write_all(self.masker.mask(text).as_bytes())
    }

    /// Says why the command ended early, and with which code.
    pub fn fail(&self, error: &CliError) -> Exit {
        let exit = error.exit();
        match error {
            CliError::Input(problems) => self.show_problems(&problems.0, &problems.1),
            _ if exit == Exit::Success => {}
            CliError::State(problem) => self.say_error(&problem.to_string(), problem.help().as_deref()),
            CliError::Moved(_) => self.say_error(
                &error.to_string(),
                Some("to plan with the current files, run `etcdrun plan FILE --out PLAN`"),
            ),
            CliError::Usage { message, help } | CliError::Refused { message, help } => {
                self.say_error(message, help.as_deref())
            }
            CliError::Locked { message, help } => self.say_error(message, Some(help)),
            other => self.say_error(&other.to_string(), None),
        }
        exit
    }

    /// Something that a person should know, and that stops nothing.
    pub fn warn(&self, message: &str) {
        let mut diagnostics = Diagnostics::default();
        diagnostics.push(crate::source::Diagnostic::warning(None, sanitize(message).into_owned()));
        self.show_problems(&diagnostics, &Sources::default());
    }

    fn say_error(&self, message: &str, help: Option<&str>) {
        let mut diagnostic = crate::source::Diagnostic::error(None, sanitize(message).into_owned());
        diagnostic.help = help.map(str::to_owned);
        let mut diagnostics = Diagnostics::default();
        diagnostics.push(diagnostic);
        let diagnostics = diagnostics.masked(&self.masker);
        let sources = Sources::default();
        let text = match self.json {
            true => {
                let _ = self.print(&diagnostics_as_json(&diagnostics, &sources));
                return;
            }
            false => render_diagnostics(&diagnostics, &sources, &self.stderr),
        };
        // One problem needs no count.
        let text = text.trim_end().trim_end_matches("1 error").trim_end();
        let _ = self.complain(&format!("{text}\n"));
    }
}

/// Standard error, without secrets. The log writes an event at a time.
struct MaskedLog(Masker);

impl Write for MaskedLog {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        stderr().lock().write_all(self.0.mask(&String::from_utf8_lossy(event)).as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        stderr().lock().flush()
    }
}

/// ETCDRUN_LOG=debug shows the inner workings, for whoever hunts a bug in them.
fn start_log(masker: Masker) {
    let Some(filter) = env::var("ETCDRUN_LOG").ok().filter(|filter| !filter.is_empty()) else { return };
    let log = tracing_subscriber::fmt().with_writer(move || MaskedLog(masker.clone())).with_env_filter(filter);
    // A second start, as in tests, keeps the first log.
    let _ = log.try_init();
}
