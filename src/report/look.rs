//! How output looks: colour or none, drawings or none, how wide.

use std::{
    env,
    fmt::Display,
    io::{IsTerminal, stderr, stdout},
};

use console::{Style, StyledObject, Term};

/// Width of text where no terminal says otherwise.
const DEFAULT_WIDTH: usize = 100;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum ColorChoice {
    /// Colour on a terminal, unless NO_COLOR is set.
    #[default]
    Auto,
    Always,
    Never,
}

/// How output looks on one stream.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    pub color: bool,
    /// The stream is a terminal that a person watches; drawings and progress are welcome.
    pub live: bool,
    pub width: usize,
}

/// What `Look::paint` writes around a text, and nothing else does.
pub(super) const PAINT: [&str; 7] = ["\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[35m"];

/// What a coloured piece of text means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    Good,
    Changed,
    Bad,
    Warning,
    Quiet,
    Strong,
    Plain,
}

impl Look {
    /// Clean lines: what files, pipes and tests get.
    pub const PLAIN: Self = Self { color: false, live: false, width: DEFAULT_WIDTH };

    pub fn of_stdout(choice: ColorChoice, plain: bool) -> Self {
        Self::of(&Term::stdout(), stdout().is_terminal(), choice, plain)
    }

    pub fn of_stderr(choice: ColorChoice, plain: bool) -> Self {
        Self::of(&Term::stderr(), stderr().is_terminal(), choice, plain)
    }

    fn of(term: &Term, terminal: bool, choice: ColorChoice, plain: bool) -> Self {
        let dumb = env::var_os("TERM").is_some_and(|name| name == "dumb");
        // https://no-color.org: any value but the empty one.
        let unwanted = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let clean = plain || dumb || (unwanted && choice == ColorChoice::Auto);
        let live = terminal && !clean;
        let color = match choice {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto => live,
        };
        let width = if terminal { usize::from(term.size().1).max(40) } else { DEFAULT_WIDTH };
        Self { color, live, width }
    }

    pub fn paint<T: Display>(&self, tone: Tone, text: T) -> StyledObject<T> {
        let style = Style::new().force_styling(self.color);
        let style = match tone {
            Tone::Good => style.green(),
            Tone::Changed => style.yellow(),
            Tone::Bad => style.red().bold(),
            Tone::Warning => style.magenta(),
            Tone::Quiet => style.dim(),
            Tone::Strong => style.bold(),
            Tone::Plain => style,
        };
        style.apply_to(text)
    }
}
