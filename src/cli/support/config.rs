//! Settings: `etcdrun.toml` and ETCDRUN_* variables.
//!
//! The nearest `etcdrun.toml` from the current folder upwards is read, or else the one in the user's
//! configuration folder; never both. A variable wins over the file, a flag over both. Each key is
//! also a variable: `connect_timeout` is ETCDRUN_CONNECT_TIMEOUT. A wrong or unknown key is an error
//! with its place; an unknown variable is a warning, because other programs may set it. A file that
//! somebody else has written, or could have, is refused, unless ETCDRUN_CONFIG names it.

use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use toml::de::{DeTable, DeValue};

use crate::{
    model::{Seconds, Span},
    report::ColorChoice,
    source::{Diagnostic, Diagnostics, Sources, did_you_mean, distrust, nearest},
};

const FILE_NAME: &str = "etcdrun.toml";
const PREFIX: &str = "ETCDRUN_";

/// Variables that are not settings: where the file is, what to log, and where tests want a crash.
const OTHER_VARIABLES: [&str; 4] = ["ETCDRUN_CONFIG", "ETCDRUN_LOG", "ETCDRUN_TEST_DIE", "ETCDRUN_TEST_OFF"];

/// Every key, with what it means. docs/cli.md has the same table; a test holds them together.
pub const KEYS: &[(&str, &str)] = &[
    ("inventory", "inventory paths, a string or a list; as a variable, separated by commas"),
    (
        "roles_path",
        "directories to search for roles, after `roles` next to the playbook; as a variable, separated by colons",
    ),
    ("forks", "maximum number of concurrent tasks, on all hosts together; 50"),
    ("remote_user", "the user to log in as"),
    ("private_key_file", "the key to log in with"),
    ("ssh_config", "the SSH configuration to read instead of ~/.ssh/config"),
    ("accept_new", "whether to trust host keys that were never seen; false"),
    ("connect_timeout", "connection timeout, in seconds or with a unit; 10"),
    ("become", "whether to become another user by sudo; false"),
    ("become_user", "the user to become; root"),
    ("become_ask_pass", "whether to prompt for the sudo password; false"),
    ("become_password_file", "the file whose first line is the sudo password"),
    ("age_identity", "identity files that decrypt secrets, a string or a list; as a variable, separated by colons"),
    ("age_passphrase_file", "the file whose first line is the age passphrase"),
    ("plain", "plain lines instead of progress bars; false"),
    ("color", "auto, always or never; auto"),
    ("state_dir", "the state directory; .etcdrun next to the inventory"),
    ("lock_dir", "the directory for locks on hosts, the same for all operators; /var/tmp/etcdrun-locks"),
];

/// What the configuration says; `None` where it says nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    pub inventory: Vec<PathBuf>,
    pub roles_path: Vec<PathBuf>,
    pub forks: Option<usize>,
    pub remote_user: Option<String>,
    pub private_key_file: Option<PathBuf>,
    pub ssh_config: Option<PathBuf>,
    pub accept_new: bool,
    pub connect_timeout: Option<Duration>,
    pub r#become: bool,
    pub become_user: Option<String>,
    pub become_ask_pass: bool,
    pub become_password_file: Option<PathBuf>,
    pub age_identity: Vec<PathBuf>,
    pub age_passphrase_file: Option<PathBuf>,
    pub plain: bool,
    /// Of the terminal at hand, so it is not kept with a run.
    #[serde(skip)]
    pub color: Option<ColorChoice>,
    pub state_dir: Option<PathBuf>,
    pub lock_dir: Option<String>,
}

/// A value as it was given; variables are always text.
#[derive(Clone, Debug)]
enum Given {
    Text(String),
    Bool(bool),
    Number(String),
    List(Vec<String>),
}

impl Settings {
    /// Reads the file, then the variables.
    pub fn load(sources: &mut Sources, diagnostics: &mut Diagnostics) -> Self {
        let mut settings = Self::default();
        match find_file() {
            Some(Found::Named(path)) => settings.read_file(&path, sources, diagnostics),
            Some(Found::Nearby(path)) => match distrust(&path) {
                None => settings.read_file(&path, sources, diagnostics),
                Some(why) => diagnostics.push(not_ours(&path, &why)),
            },
            None => {}
        }
        settings.read_variables(env::vars_os(), diagnostics);
        settings
    }

    fn read_file(&mut self, path: &Path, sources: &mut Sources, diagnostics: &mut Diagnostics) {
        let file = match sources.read(path) {
            Ok(file) => file,
            Err(problem) => return diagnostics.push(problem),
        };
        let text = sources.shared_text(file);
        let (table, errors) = DeTable::parse_recoverable(&text);
        for error in &errors {
            let span = error.span().unwrap_or_default();
            diagnostics.error(Span::new(file, span.start, span.end), error.message().trim().to_owned());
        }
        if !errors.is_empty() {
            return;
        }
        let folder = path.parent().unwrap_or(Path::new(""));
        for (key, value) in table.get_ref() {
            let span = |range: std::ops::Range<usize>| Span::new(file, range.start, range.end);
            if !KEYS.iter().any(|(name, _)| *name == key.get_ref().as_ref()) {
                diagnostics.push(unknown_key(key.get_ref(), span(key.span())));
                continue;
            }
            let outcome = given(value.get_ref()).and_then(|given| self.set(key.get_ref(), given, folder));
            if let Err(problem) = outcome {
                diagnostics.error(span(value.span()), format!("`{}` {problem}", key.get_ref()));
            }
        }
    }

    fn read_variables(&mut self, variables: impl Iterator<Item = (OsString, OsString)>, diagnostics: &mut Diagnostics) {
        for (name, value) in variables {
            let Some(name) = name.to_str().filter(|name| name.starts_with(PREFIX)) else { continue };
            if OTHER_VARIABLES.contains(&name) {
                continue;
            }
            let key = name[PREFIX.len()..].to_lowercase();
            if !KEYS.iter().any(|(known, _)| *known == key) {
                let near = nearest(&key, KEYS.iter().map(|(known, _)| *known));
                let help = near.map(|near| format!("did you mean {PREFIX}{}?", near.to_uppercase()));
                diagnostics.push(Diagnostic::warning(None, format!("the variable {name} is unknown")).maybe_help(help));
                continue;
            }
            let given = Given::Text(value.to_string_lossy().into_owned());
            // An empty variable is an unset one, as is the custom.
            if value.is_empty() {
                continue;
            }
            if let Err(problem) = self.set(&key, given, Path::new("")) {
                diagnostics.error(None, format!("the variable {name} {problem}"));
            }
        }
    }

    /// Sets one key. Relative paths are relative to `folder`. The error reads on after the key's name.
    fn set(&mut self, key: &str, given: Given, folder: &Path) -> Result<(), String> {
        let path = |given: Given| given.text().map(|text| expand(&text, folder));
        let paths = |given: Given, separator: char| {
            given.list(separator).map(|list| list.iter().map(|text| expand(text, folder)).collect::<Vec<_>>())
        };
        match key {
            "inventory" => self.inventory = paths(given, ',')?,
            "roles_path" => self.roles_path = paths(given, ':')?,
            "forks" => self.forks = Some(given.count()?),
            "remote_user" => self.remote_user = Some(given.text()?),
            "private_key_file" => self.private_key_file = Some(path(given)?),
            "ssh_config" => self.ssh_config = Some(path(given)?),
            "accept_new" => self.accept_new = given.flag()?,
            "connect_timeout" => self.connect_timeout = Some(given.duration()?),
            "become" => self.r#become = given.flag()?,
            "become_user" => self.become_user = Some(given.text()?),
            "become_ask_pass" => self.become_ask_pass = given.flag()?,
            "become_password_file" => self.become_password_file = Some(path(given)?),
            "age_identity" => self.age_identity = paths(given, ':')?,
            "age_passphrase_file" => self.age_passphrase_file = Some(path(given)?),
            "plain" => self.plain = given.flag()?,
            "color" => self.color = Some(given.color()?),
            "state_dir" => self.state_dir = Some(path(given)?),
            "lock_dir" => self.lock_dir = Some(given.absolute()?),
            _ => return Err("is unknown".to_owned()),
        }
        Ok(())
    }
}

fn unknown_key(key: &str, span: Span) -> Diagnostic {
    let help = did_you_mean(key, KEYS.iter().map(|(name, _)| *name)).unwrap_or_else(|| {
        format!("the keys are: {}", KEYS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", "))
    });
    Diagnostic::error(span, format!("unknown key `{key}`")).help(help)
}

fn given(value: &DeValue<'_>) -> Result<Given, String> {
    match value {
        DeValue::String(text) => Ok(Given::Text(text.to_string())),
        DeValue::Boolean(flag) => Ok(Given::Bool(*flag)),
        DeValue::Integer(number) => Ok(Given::Number(number.to_string())),
        DeValue::Float(number) => Ok(Given::Number(number.to_string())),
        DeValue::Array(items) => {
            let texts = items.iter().map(|item| item.get_ref().as_str().map(str::to_owned));
            texts.collect::<Option<Vec<_>>>().map(Given::List).ok_or_else(|| "takes a list of strings".to_owned())
        }
        DeValue::Datetime(_) | DeValue::Table(_) => Err("takes a plain value".to_owned()),
    }
}

impl Given {
    fn text(self) -> Result<String, String> {
        match self {
            Self::Text(text) => Ok(text),
            _ => Err("takes a string".to_owned()),
        }
    }

    /// A path on hosts.
    fn absolute(self) -> Result<String, String> {
        let text = self.text()?;
        let is_plain = text.starts_with('/') && !text.chars().any(char::is_control);
        is_plain.then_some(text).ok_or_else(|| "takes an absolute path".to_owned())
    }

    fn list(self, separator: char) -> Result<Vec<String>, String> {
        match self {
            Self::List(list) => Ok(list),
            Self::Text(text) => Ok(text.split(separator).filter(|part| !part.is_empty()).map(str::to_owned).collect()),
            _ => Err("takes a string or a list of strings".to_owned()),
        }
    }

    fn flag(self) -> Result<bool, String> {
        match self {
            Self::Bool(flag) => Ok(flag),
            Self::Text(text) if text == "true" || text == "1" => Ok(true),
            Self::Text(text) if text == "false" || text == "0" => Ok(false),
            _ => Err("takes true or false".to_owned()),
        }
    }

    fn count(self) -> Result<usize, String> {
        let wrong = || "takes a number from 1 on".to_owned();
        match self {
            Self::Number(text) | Self::Text(text) => text.parse().ok().filter(|n| *n > 0).ok_or_else(wrong),
            _ => Err(wrong()),
        }
    }

    fn duration(self) -> Result<Duration, String> {
        match self {
            Self::Number(text) | Self::Text(text) => {
                text.parse::<Seconds>().map(|seconds| seconds.0).map_err(|error| format!("is wrong: {error}"))
            }
            _ => Err("takes a duration, like 10 or 30s".to_owned()),
        }
    }

    fn color(self) -> Result<ColorChoice, String> {
        let wrong = || "takes auto, always or never".to_owned();
        self.text().and_then(|text| ColorChoice::from_str(&text, false)).map_err(|_| wrong())
    }
}

fn expand(text: &str, folder: &Path) -> PathBuf {
    match (text.strip_prefix("~/"), env::home_dir()) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => folder.join(text),
    }
}

/// Where the file is.
enum Found {
    /// A person has named it.
    Named(PathBuf),
    /// It lies where it is looked for, whoever has put it there.
    Nearby(PathBuf),
}

fn find_file() -> Option<Found> {
    if let Some(path) = env::var_os("ETCDRUN_CONFIG").filter(|path| !path.is_empty()) {
        return Some(Found::Named(path.into()));
    }
    let here = env::current_dir().ok()?;
    let upwards = here.ancestors().map(|folder| folder.join(FILE_NAME)).find(|path| path.exists());
    upwards.or_else(|| user_file().filter(|path| path.exists())).map(Found::Nearby)
}

/// It names programs that run as us, and keys that are used.
fn not_ours(path: &Path, why: &str) -> Diagnostic {
    let path = path.display();
    let help = format!(
        "to use it, make it yours (`chown`, `chmod go-w`), or name it: `export ETCDRUN_CONFIG={path}`; to do without it: `export ETCDRUN_CONFIG=/dev/null`"
    );
    Diagnostic::error(None, format!("cannot use {path}: {why}")).help(help)
}

fn user_file() -> Option<PathBuf> {
    let folder = env::var_os("XDG_CONFIG_HOME").filter(|path| !path.is_empty()).map(PathBuf::from);
    let folder = folder.or_else(|| env::home_dir().map(|home| home.join(".config")))?;
    Some(folder.join("etcdrun").join(FILE_NAME))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Look, render_diagnostics};

    fn read(text: &str) -> (Settings, String) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE_NAME);
        std::fs::write(&path, text).unwrap();
        let (mut settings, mut sources, mut diagnostics) =
            (Settings::default(), Sources::default(), Diagnostics::default());
        settings.read_file(&path, &mut sources, &mut diagnostics);
        let said = render_diagnostics(&diagnostics, &sources, &Look::PLAIN);
        (settings, said.replace(&format!("{}/", folder.path().display()), ""))
    }

    fn variables(settings: &mut Settings, list: &[(&str, &str)]) -> Diagnostics {
        let mut diagnostics = Diagnostics::default();
        settings.read_variables(list.iter().map(|(k, v)| (k.into(), v.into())), &mut diagnostics);
        diagnostics
    }

    #[test]
    fn a_file_sets_what_it_names() {
        let (settings, said) =
            read("forks = 7\nconnect_timeout = \"1m\"\ninventory = [\"a\", \"/b\"]\ncolor = \"never\"\n");
        assert_eq!(said, "");
        assert_eq!((settings.forks, settings.connect_timeout), (Some(7), Some(Duration::from_secs(60))));
        assert!(settings.inventory[0].is_absolute(), "relative to the file, not to the current folder");
        assert_eq!(settings.inventory[1], Path::new("/b"));
        assert_eq!(settings.color, Some(ColorChoice::Never));
    }

    #[test]
    fn every_mistake_has_its_place() {
        let (_, said) =
            read("fork = 7\naccept_new = \"perhaps\"\nforks = 0\nxyzzy = 1\ninventory = [1]\n[ssh]\nuser = 1\n");
        insta::assert_snapshot!(said);
    }

    #[test]
    fn a_file_that_is_not_toml_says_so() {
        let (_, said) = read("forks = = 7\n");
        assert!(said.starts_with("etcdrun.toml:1:"), "{said}");
    }

    #[test]
    fn variables_win_over_the_file() {
        let (mut settings, _) = read("forks = 7\naccept_new = true\n");
        let diagnostics = variables(
            &mut settings,
            &[("ETCDRUN_ACCEPT_NEW", "false"), ("ETCDRUN_INVENTORY", "a,b"), ("ETCDRUN_FORKS", ""), ("HOME", "/x")],
        );
        assert!(diagnostics.is_empty());
        assert_eq!((settings.forks, settings.accept_new), (Some(7), false));
        assert_eq!(settings.inventory, [Path::new("a"), Path::new("b")]);
    }

    #[test]
    fn a_wrong_variable_is_an_error_and_an_unknown_one_a_warning() {
        let wrong = variables(&mut Settings::default(), &[("ETCDRUN_FORKS", "many")]);
        assert!(wrong.has_errors());
        let unknown = variables(&mut Settings::default(), &[("ETCDRUN_FORK", "7")]);
        assert!(!unknown.has_errors());
        assert_eq!(unknown.iter().next().unwrap().help.as_deref(), Some("did you mean ETCDRUN_FORKS?"));
    }

    #[test]
    fn every_key_can_be_set_and_is_documented() {
        let docs = include_str!("../../../docs/cli.md");
        for (key, meaning) in KEYS {
            let outcome = Settings::default().set(key, Given::Text("1".into()), Path::new(""));
            assert_ne!(outcome, Err("is unknown".to_owned()), "{key}");
            assert!(docs.contains(&format!("| `{key}` | {meaning} |")), "docs/cli.md lacks | `{key}` | {meaning} |");
        }
    }
}
