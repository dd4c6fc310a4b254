//! The syntax of `ssh_config`: lines into blocks, quoting, `Include`.

use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use super::super::SshError;
use super::super::pattern;
use super::{Local, ProxySetting};

/// As deep as `ssh` itself goes before it takes nested includes for a loop.
const MAX_INCLUDE_DEPTH: usize = 16;

#[derive(Debug, Clone)]
pub(super) struct Block {
    pub condition: Condition,
    pub items: Vec<Item>,
}

#[derive(Debug, Clone)]
pub(super) enum Condition {
    Always,
    Host(Vec<String>),
    Match(Vec<Criterion>),
}

#[derive(Debug, Clone)]
pub(super) struct Criterion {
    pub negated: bool,
    pub name: String,
    pub value: String,
}

#[derive(Debug, Clone)]
pub(super) enum Item {
    Setting(Setting),
    /// Blocks of an included file; they apply only where the including block does.
    Include(Vec<Block>),
}

/// One `Keyword arguments` line.
#[derive(Debug, Clone)]
pub(super) struct Setting {
    /// In lower case: keywords have none.
    pub keyword: String,
    arguments: Vec<String>,
    /// Everything after the keyword, for ProxyCommand, which is not split.
    rest: String,
    file: PathBuf,
    line: usize,
}

pub(super) fn read_file(path: &Path, include_folder: &Path, local: &Local) -> Result<Vec<Block>, SshError> {
    read_nested(path, include_folder, local, 0)
}

fn read_nested(path: &Path, folder: &Path, local: &Local, depth: usize) -> Result<Vec<Block>, SshError> {
    let bytes = std::fs::read(path).map_err(|source| SshError::read(path, &source))?;
    let text = String::from_utf8_lossy(&bytes);
    let mut blocks = vec![Block { condition: Condition::Always, items: Vec::new() }];
    for (index, line) in text.lines().enumerate() {
        let Some(setting) = parse_line(line, path, index + 1)? else {
            continue;
        };
        match setting.keyword.as_str() {
            "host" => blocks.push(block(Condition::Host(setting.all()?))),
            "match" => blocks.push(block(Condition::Match(setting.criteria()?))),
            "include" => {
                let included = include(&setting, folder, local, depth)?;
                push(&mut blocks, Item::Include(included));
            }
            _ => push(&mut blocks, Item::Setting(setting)),
        }
    }
    Ok(blocks)
}

fn block(condition: Condition) -> Block {
    Block { condition, items: Vec::new() }
}

fn push(blocks: &mut [Block], item: Item) {
    if let Some(block) = blocks.last_mut() {
        block.items.push(item);
    }
}

fn include(setting: &Setting, folder: &Path, local: &Local, depth: usize) -> Result<Vec<Block>, SshError> {
    if depth >= MAX_INCLUDE_DEPTH {
        return Err(setting.error("Include is nested too deeply; a file may include itself"));
    }
    let mut blocks = Vec::new();
    for argument in setting.all()? {
        let path = folder.join(local.expand_home(&argument));
        for file in expand_glob(&path) {
            blocks.extend(read_nested(&file, folder, local, depth + 1)?);
        }
    }
    Ok(blocks)
}

/// The existing files a path with `*` and `?` stands for, sorted. No match is no error, as in ssh.
fn expand_glob(path: &Path) -> Vec<PathBuf> {
    let mut found = vec![PathBuf::new()];
    for component in path.components() {
        let wanted = component.as_os_str().to_string_lossy();
        let is_glob = matches!(component, Component::Normal(_)) && wanted.contains(['*', '?']);
        found = found
            .iter()
            .flat_map(|base| match is_glob {
                true => entries_matching(base, &wanted),
                false => vec![base.join(component)],
            })
            .collect();
    }
    found.retain(|path| path.is_file());
    found
}

fn entries_matching(folder: &Path, wanted: &str) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut names: Vec<_> = entries
        .filter_map(|entry| Some(entry.ok()?.file_name()))
        .filter(|name| {
            let name = name.to_string_lossy();
            // As in a shell, a leading dot must be asked for.
            pattern::matches(wanted, &name) && (wanted.starts_with('.') || !name.starts_with('.'))
        })
        .collect();
    names.sort();
    names.into_iter().map(|name| folder.join(name)).collect()
}

fn parse_line(line: &str, file: &Path, number: usize) -> Result<Option<Setting>, SshError> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    let end = line.find(|c: char| c.is_whitespace() || c == '=').unwrap_or(line.len());
    let (keyword, rest) = line.split_at(end);
    let rest = rest.trim_start();
    let rest = rest.strip_prefix('=').unwrap_or(rest).trim();
    let mut setting = Setting {
        keyword: keyword.trim_matches('"').to_ascii_lowercase(),
        arguments: Vec::new(),
        rest: rest.to_owned(),
        file: file.to_owned(),
        line: number,
    };
    setting.arguments = match split_arguments(rest) {
        Some(arguments) => arguments,
        // A command has its own quoting, which is the shell's business.
        None if setting.keyword == "proxycommand" => Vec::new(),
        None => return Err(setting.error("a quote is not closed")),
    };
    Ok(Some(setting))
}

/// Splits at blanks outside of quotes; `None` if a quote stays open.
fn split_arguments(text: &str) -> Option<Vec<String>> {
    let mut arguments = Vec::new();
    let mut current: Option<String> = None;
    let mut quote = None;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match (c, quote) {
            ('\\', _) if matches!(chars.peek(), Some('"' | '\'' | '\\')) => {
                current.get_or_insert_default().extend(chars.next());
            }
            (c, Some(open)) if c == open => quote = None,
            (c, Some(_)) => current.get_or_insert_default().push(c),
            ('"' | '\'', None) => {
                quote = Some(c);
                current.get_or_insert_default();
            }
            ('#', None) if current.is_none() => break,
            (c, None) if c.is_whitespace() => arguments.extend(current.take()),
            (c, None) => current.get_or_insert_default().push(c),
        }
    }
    if quote.is_some() {
        return None;
    }
    arguments.extend(current);
    Some(arguments)
}

impl Setting {
    fn error(&self, problem: impl Into<String>) -> SshError {
        SshError::Config { file: self.file.clone(), line: self.line, problem: problem.into() }
    }

    pub fn one(&self) -> Result<String, SshError> {
        let first = self.arguments.first().cloned();
        first.ok_or_else(|| self.error(format!("`{}` has no value", self.keyword)))
    }

    pub fn all(&self) -> Result<Vec<String>, SshError> {
        self.one()?;
        Ok(self.arguments.clone())
    }

    pub fn port(&self) -> Result<u16, SshError> {
        let value = self.one()?;
        match value.parse() {
            Ok(port) if port > 0 => Ok(port),
            _ => Err(self.error(format!("`{value}` is not a port"))),
        }
    }

    pub fn flag(&self) -> Result<bool, SshError> {
        match self.one()?.to_ascii_lowercase().as_str() {
            "yes" | "true" => Ok(true),
            "no" | "false" => Ok(false),
            other => Err(self.error(format!("`{other}` is neither yes nor no"))),
        }
    }

    /// Seconds, or ssh's `1m30s` notation. `none` leaves the default in place.
    pub fn timeout(&self) -> Result<Option<Duration>, SshError> {
        let value = self.one()?.to_ascii_lowercase();
        if value == "none" || value == "0" {
            return Ok(None);
        }
        let seconds = seconds(&value).ok_or_else(|| self.error(format!("`{value}` is not a duration")))?;
        Ok(Some(Duration::from_secs(seconds)))
    }

    pub fn proxy_jump(&self) -> Result<ProxySetting, SshError> {
        let value = self.one()?;
        if value.eq_ignore_ascii_case("none") {
            return Ok(ProxySetting::None);
        }
        Ok(ProxySetting::Jump(value.split(',').map(|hop| hop.trim().to_owned()).collect()))
    }

    pub fn proxy_command(&self) -> Result<ProxySetting, SshError> {
        match self.rest.as_str() {
            "" => Err(self.error("`proxycommand` has no value")),
            none if none.eq_ignore_ascii_case("none") => Ok(ProxySetting::None),
            command => Ok(ProxySetting::Command(command.to_owned())),
        }
    }

    fn criteria(&self) -> Result<Vec<Criterion>, SshError> {
        let mut words = self.all()?.into_iter();
        let mut criteria = Vec::new();
        while let Some(word) = words.next() {
            let (negated, name) = match word.strip_prefix('!') {
                Some(name) => (true, name),
                None => (false, word.as_str()),
            };
            let name = name.to_ascii_lowercase();
            let value = match name.as_str() {
                "all" | "canonical" | "final" => String::new(),
                _ => words.next().ok_or_else(|| self.error(format!("`Match {name}` has no value")))?,
            };
            criteria.push(Criterion { negated, name, value });
        }
        Ok(criteria)
    }
}

fn seconds(text: &str) -> Option<u64> {
    let mut total: u64 = 0;
    let mut number = String::new();
    for c in text.chars() {
        let factor = match c {
            '0'..='9' => {
                number.push(c);
                continue;
            }
            's' => 1,
            'm' => 60,
            'h' => 3600,
            'd' => 86_400,
            'w' => 604_800,
            _ => return None,
        };
        total = total.checked_add(number.parse::<u64>().ok()?.checked_mul(factor)?)?;
        number.clear();
    }
    match number.is_empty() {
        true => Some(total),
        false => total.checked_add(number.parse().ok()?),
    }
}
