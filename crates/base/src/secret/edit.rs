//! YAML with its `!age` values opened, for a person to edit, and sealed again afterwards.
//!
//! A value that comes back as it was keeps its old ciphertext, so that a diff shows what changed.

use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use super::yaml::{Tagged, block, tagged};
use crate::source::{AGE_TAG, Diagnostic, is_sealed};

/// A file as it is being edited.
pub struct Draft {
    /// With plain text where the ciphertext was.
    pub text: Zeroizing<String>,
    path: PathBuf,
    values: Vec<Value>,
}

struct Value {
    plain: Zeroizing<String>,
    sealed: String,
}

/// Opens a ciphertext that stands on a line.
type Open<'o, E> = &'o dyn Fn(&str, usize) -> Result<Zeroizing<Vec<u8>>, E>;

/// Inside: what the caller's own work came to. Outside: what is wrong with the YAML.
type Outcome<T, E> = Result<Result<T, E>, Vec<Diagnostic>>;

impl Draft {
    /// Opens all values.
    pub fn open<E>(path: &Path, text: &str, open: Open<'_, E>) -> Outcome<Self, E> {
        let found = tagged(path, text)?;
        let mut draft = Self { text: Zeroizing::new(text.to_owned()), path: path.to_owned(), values: Vec::new() };
        for value in found.iter().rev() {
            let plain = match open(&value.text, value.line) {
                Ok(plain) => plain,
                Err(error) => return Ok(Err(error)),
            };
            let Ok(plain) = std::str::from_utf8(&plain) else { continue };
            let place = Place::of(value, &draft.text);
            draft.text.replace_range(place.start..place.end, &readable(plain, &place));
            draft.values.push(Value { plain: Zeroizing::new(plain.to_owned()), sealed: value.text.clone() });
        }
        draft.values.reverse();
        Ok(Ok(draft))
    }

    /// The ciphertexts, in order.
    pub fn sealed(&self) -> impl Iterator<Item = &str> {
        self.values.iter().map(|value| value.sealed.as_str())
    }

    /// Seals what was edited. Values that are new, or tagged for the first time, are sealed as well.
    pub fn seal<E>(&self, edited: &str, seal: &dyn Fn(&str) -> Result<String, E>) -> Outcome<String, E> {
        let found = tagged(&self.path, edited)?;
        let mut text = edited.to_owned();
        for value in found.iter().rev() {
            let sealed = match self.known(&value.text).map_or_else(|| seal(&value.text), Ok) {
                Ok(sealed) => sealed,
                Err(error) => return Ok(Err(error)),
            };
            let place = Place::of(value, edited);
            text.replace_range(place.start..place.end, &place.written(&sealed));
        }
        // Whatever the layout was, nothing must have become part of a value or left it.
        let sound = tagged(&self.path, &text)?.iter().all(|value| is_sealed(value.text.as_bytes()));
        match sound {
            true => Ok(Ok(text)),
            false => Err(vec![Diagnostic::error(None, "a value could not be put back where it was")]),
        }
    }

    fn known(&self, plain: &str) -> Option<String> {
        if is_sealed(plain.as_bytes()) {
            return Some(plain.to_owned());
        }
        self.values.iter().find(|value| *value.plain == plain).map(|value| value.sealed.clone())
    }
}

/// Where a value stands, from its tag to its end.
struct Place {
    start: usize,
    end: usize,
    /// For the lines of a block.
    indent: usize,
    /// Whether something follows on the same line, so that a block has no room.
    inline: bool,
}

impl Place {
    fn of(value: &Tagged, text: &str) -> Self {
        let (from, to) = (value.span.start as usize, value.span.end as usize);
        let start = text[..from].rfind(AGE_TAG).unwrap_or(from);
        let end = start + text[start..to].trim_end().len();
        let line = &text[text[..start].rfind('\n').map_or(0, |at| at + 1)..start];
        let rest = text[end..].split('\n').next().unwrap_or_default();
        let inline = !rest.trim().is_empty() || line.contains(['{', '[']);
        // A list item's own mapping starts behind its dashes.
        let indent = line.len() - line.trim_start_matches([' ', '-']).len() + 2;
        Self { start, end, indent, inline }
    }

    fn written(&self, armored: &str) -> String {
        match self.inline {
            true => format!("{AGE_TAG} {}", quoted(armored)),
            false => block(armored, self.indent).trim_end().to_owned(),
        }
    }
}

/// The plain text as YAML: a block where that says exactly the same, in quotes otherwise.
fn readable(plain: &str, place: &Place) -> Zeroizing<String> {
    let lines: Vec<&str> = plain.strip_suffix('\n').unwrap_or(plain).split('\n').collect();
    let is_block = !place.inline
        && lines.first().is_some_and(|line| !line.is_empty() && !line.starts_with(' '))
        && lines.last().is_some_and(|line| !line.is_empty())
        // A blank at the end of a line is seen in quotes only.
        && lines.iter().all(|line| line.chars().all(is_ordinary) && !line.ends_with(' '))
        && !is_sealed(plain.as_bytes());
    if !is_block {
        return Zeroizing::new(format!("{AGE_TAG} {}", quoted(plain)));
    }
    let header = if plain.ends_with('\n') { "|" } else { "|-" };
    let blanks = " ".repeat(place.indent);
    let body: Vec<String> = lines.iter().map(|line| format!("\n{blanks}{line}")).collect();
    Zeroizing::new(format!("{AGE_TAG} {header}{}", body.concat()))
}

fn is_ordinary(c: char) -> bool {
    c == ' ' || c.is_ascii_graphic() || c.is_alphanumeric()
}

fn quoted(text: &str) -> String {
    let escaped = |c: char| match c {
        '"' | '\\' => format!("\\{c}"),
        '\n' => "\\n".to_owned(),
        '\t' => "\\t".to_owned(),
        c if is_ordinary(c) => c.to_string(),
        c => format!("\\U{:08x}", u32::from(c)),
    };
    format!("\"{}\"", text.chars().map(escaped).collect::<String>())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fake(plain: &str) -> String {
        let hex: String = plain.bytes().map(|byte| format!("{byte:02x}")).collect();
        format!("-----BEGIN AGE ENCRYPTED FILE-----\nX{hex}\n-----END AGE ENCRYPTED FILE-----\n")
    }

    fn unfake(sealed: &str) -> Zeroizing<Vec<u8>> {
        let hex = sealed.lines().nth(1).unwrap().trim().trim_start_matches('X');
        Zeroizing::new((0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect())
    }

    fn open(text: &str) -> Draft {
        Draft::open::<()>(Path::new("t.yaml"), text, &|sealed, _| Ok(unfake(sealed))).unwrap().unwrap()
    }

    fn seal(draft: &Draft, edited: &str) -> String {
        draft.seal::<()>(edited, &|plain| Ok(fake(plain))).unwrap().unwrap()
    }

    fn file(values: [&str; 3]) -> String {
        let [a, b, c] = values.map(fake);
        let quoted = serde_json::Value::from(c);
        format!(
            "# top\na: {}\nlist:\n  - key: {}    other: 1 # kept\nc: {{x: !age {quoted}, y: 2}}\n",
            block(&a, 2),
            block(&b, 6)
        )
    }

    #[test]
    fn values_are_shown_and_sealed_again() {
        let text = file(["hunter2", "two\nlines\n", "in quotes"]);
        let draft = open(&text);
        assert!(draft.text.contains("a: !age |-\n  hunter2\n"), "{}", *draft.text);
        assert!(draft.text.contains("key: !age |\n      two\n      lines\n"), "{}", *draft.text);
        let edited = draft.text.replace("hunter2", "hunter3") + "new: !age \"brand new\"\n";
        let sealed = seal(&draft, &edited);
        let expected =
            file(["hunter3", "two\nlines\n", "in quotes"]) + &format!("new: {}", block(&fake("brand new"), 2));
        assert_eq!(sealed, expected);
    }

    proptest! {
        #[test]
        fn any_value_comes_back_as_it_was(a in "[ -~äöü\n\t]{0,20}", b in any::<String>(), c in "\\PC{0,10}") {
            let text = file([&a, &b, &c]);
            let draft = open(&text);
            prop_assert_eq!(seal(&draft, &draft.text), text);
            // Also where nothing is remembered.
            let fresh = Draft { text: Zeroizing::default(), path: "t.yaml".into(), values: Vec::new() };
            let found = tagged(Path::new("t.yaml"), &seal(&fresh, &draft.text)).unwrap();
            let plain: Vec<_> = found.iter().map(|value| unfake(&value.text)).collect();
            prop_assert_eq!(plain, [a, b, c].map(|text| Zeroizing::new(text.into_bytes())));
        }
    }
}
