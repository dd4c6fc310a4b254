//! Splits a command line into words the way a shell would, without anything else a shell does.
//!
//! By hand: shlex and shell-words take a word that begins with `#` for a comment and drop the rest of the line, which here is an
//! argument as any other; and they do not say which quote is open.

use super::ModuleError;

/// Blanks separate words; quotes and backslashes keep them together. Nothing is expanded.
pub fn split(text: &str) -> Result<Vec<String>, ModuleError> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        match c {
            c if c.is_whitespace() => words.extend(word.take()),
            '\'' => single_quoted(&mut rest, word.get_or_insert_default())?,
            '"' => double_quoted(&mut rest, word.get_or_insert_default())?,
            '\\' => word.get_or_insert_default().push(rest.next().ok_or_else(|| unfinished("a backslash"))?),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Ok(words)
}

fn single_quoted(rest: &mut std::str::Chars<'_>, word: &mut String) -> Result<(), ModuleError> {
    loop {
        match rest.next() {
            Some('\'') => return Ok(()),
            Some(c) => word.push(c),
            None => return Err(unfinished("a single quote")),
        }
    }
}

fn double_quoted(rest: &mut std::str::Chars<'_>, word: &mut String) -> Result<(), ModuleError> {
    loop {
        match rest.next() {
            Some('"') => return Ok(()),
            Some('\\') => match rest.next() {
                Some(c @ ('"' | '\\' | '$' | '`')) => word.push(c),
                Some(c) => word.extend(['\\', c]),
                None => return Err(unfinished("a double quote")),
            },
            Some(c) => word.push(c),
            None => return Err(unfinished("a double quote")),
        }
    }
}

fn unfinished(what: &str) -> ModuleError {
    ModuleError::new(format!("the command ends inside {what}"))
        .help("close it, or pass the words as a list in `argv`, where nothing needs quotes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_split_as_a_shell_would() {
        let cases: [(&str, &[&str]); 8] = [
            ("", &[]),
            ("  ls   -l\n/tmp ", &["ls", "-l", "/tmp"]),
            ("echo 'a  b' c\"d e\"f", &["echo", "a  b", "cd ef"]),
            (r#"a\ b "c\"d\n" 'e\f'"#, &["a b", r#"c"d\n"#, r"e\f"]),
            ("x '' \"\"", &["x", "", ""]),
            ("echo $HOME *;|&", &["echo", "$HOME", "*;|&"]),
            ("grüße 'ö ä'", &["grüße", "ö ä"]),
            ("logger # it is no comment", &["logger", "#", "it", "is", "no", "comment"]),
        ];
        for (text, words) in cases {
            assert_eq!(split(text).unwrap(), words, "{text}");
        }
    }

    #[test]
    fn an_open_quote_is_an_error() {
        for text in ["'a", "\"a", "a\\", "\"a\\"] {
            assert!(split(text).unwrap_err().message.starts_with("the command ends inside"), "{text}");
        }
    }
}
