//! "Did you mean": the nearest known name to a mistyped one.

/// Asks whether the closest of the known names was meant, if one is close enough to be a slip of the finger.
pub fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    nearest(word, known).map(|near| format!("did you mean `{near}`?"))
}

/// The closest of the known names, if one is close enough.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
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
        assert_eq!(nearest("vcpu", known), Some("vcpus"));
        assert_eq!(nearest("memroy", known), Some("memory"));
        assert_eq!(nearest("interfaces", known), None);
        assert_eq!(did_you_mean("vcpu", known).as_deref(), Some("did you mean `vcpus`?"));
    }
}
