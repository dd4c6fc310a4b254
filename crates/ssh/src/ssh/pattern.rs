//! Host patterns as `ssh_config` and `known_hosts` share them: `*`, `?` and a leading `!`.

/// Matches without regard to ASCII case, because host names have none.
pub(super) fn matches(pattern: &str, text: &str) -> bool {
    let pattern: Vec<u8> = pattern.bytes().map(|b| b.to_ascii_lowercase()).collect();
    let text: Vec<u8> = text.bytes().map(|b| b.to_ascii_lowercase()).collect();
    let (mut p, mut t) = (0, 0);
    // Where to resume when a literal fails after a star: the star, and how far it had eaten.
    let mut retry: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                retry = Some((p, t));
                p += 1;
            }
            Some(&b) if b == b'?' || b == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match retry {
                Some((star, eaten)) => {
                    retry = Some((star, eaten + 1));
                    p = star + 1;
                    t = eaten + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|&b| b == b'*')
}

/// Whether any pattern matches, unless a negated one does: that rules the text out altogether.
pub(super) fn any_matches<'a>(patterns: impl IntoIterator<Item = &'a str>, text: &str) -> bool {
    let mut found = false;
    for pattern in patterns {
        match pattern.strip_prefix('!') {
            Some(negated) if matches(negated, text) => return false,
            Some(_) => {}
            None => found |= matches(pattern, text),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_match_like_a_shell_without_brackets() {
        assert!(matches("*", ""));
        assert!(matches("*.example.org", "a.b.example.org"));
        assert!(!matches("*.example.org", "example.org"));
        assert!(matches("hv?", "HV1"));
        assert!(!matches("hv?", "hv"));
        assert!(matches("a*b*c", "axxbyyc"));
        assert!(!matches("a*b*c", "axxbyy"));
        assert!(!matches("", "a"));
    }

    #[test]
    fn a_negated_match_wins() {
        assert!(any_matches(["*.lab", "!bad.lab"], "good.lab"));
        assert!(!any_matches(["*.lab", "!bad.lab"], "bad.lab"));
        assert!(!any_matches(["!bad.lab"], "good.lab"));
    }
}
