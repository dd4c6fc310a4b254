//! Words for a shell.

/// Quotes for a POSIX shell. The only place that does.
pub fn quote(value: &[u8]) -> Vec<u8> {
    let mut quoted = Vec::with_capacity(value.len() + 2);
    quote_onto(&mut quoted, value);
    quoted
}

/// The same, at the end of a script: of what may be secret, there is no copy in between.
pub fn quote_onto(script: &mut Vec<u8>, value: &[u8]) {
    script.push(b'\'');
    for (number, part) in value.split(|byte| *byte == b'\'').enumerate() {
        if number > 0 {
            script.extend_from_slice(b"'\\''");
        }
        script.extend_from_slice(part);
    }
    script.push(b'\'');
}
