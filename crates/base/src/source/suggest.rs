//! "Did you mean": the nearest known name to a mistyped one.

/// The closest of the known names, if it is close enough to be a slip of the finger.
pub fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .filter(|name| *name != word)
        .map(|name| (strsim::jaro_winkler(word, name), name))
        .filter(|(score, name)| *score > 0.82 || strsim::damerau_levenshtein(word, name) <= 1 + word.len() / 6)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggests_near_names_only() {
        let known = ["vcpus", "memory", "disk"];
        assert_eq!(did_you_mean("vcpu", known), Some("vcpus"));
        assert_eq!(did_you_mean("memroy", known), Some("memory"));
        assert_eq!(did_you_mean("interfaces", known), None);
    }
}
