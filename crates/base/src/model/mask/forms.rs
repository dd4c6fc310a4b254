//! The shapes in which a secret turns up: as it is, and as programs write it down.

use std::collections::BTreeSet;

use base64::{Engine, alphabet, engine::GeneralPurpose, engine::general_purpose::NO_PAD};

/// Every form, each once.
pub(super) fn of(secret: &str) -> BTreeSet<Vec<u8>> {
    let texts = [
        secret.to_owned(),
        json(secret, false),
        json(secret, true),
        format!("{secret:?}").trim_matches('"').to_owned(),
        secret.replace('\'', "'\\''"),
        secret.replace('\'', "''"),
        html(secret),
        percent(secret, b"-._~", true, false),
        percent(secret, b"-._~", false, false),
        percent(secret, b"-._~/", true, false),
        percent(secret, b"-._~", true, true),
        percent(secret, b"-._*", true, true),
        hex(secret, true),
        hex(secret, false),
    ];
    texts.into_iter().map(String::into_bytes).chain(base64_forms(secret.as_bytes())).collect()
}

fn json(secret: &str, ascii: bool) -> String {
    let quoted = serde_json::Value::from(secret).to_string();
    let inner = quoted[1..quoted.len() - 1].to_owned();
    if !ascii {
        return inner;
    }
    let mut units = [0; 2];
    let escaped = |c: char| match c.is_ascii() {
        true => c.to_string(),
        false => c.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")).collect(),
    };
    inner.chars().map(escaped).collect()
}

fn html(secret: &str) -> String {
    let escaped = |c: char| match c {
        '&' => "&amp;".to_owned(),
        '<' => "&lt;".to_owned(),
        '>' => "&gt;".to_owned(),
        '"' => "&quot;".to_owned(),
        '\'' => "&#x27;".to_owned(),
        c => c.to_string(),
    };
    secret.chars().map(escaped).collect()
}

/// As in a URL or a form; programs do not agree on what they leave as it is.
fn percent(secret: &str, plain: &[u8], upper: bool, plus: bool) -> String {
    let encoded = |byte: u8| match byte {
        b' ' if plus => "+".to_owned(),
        byte if byte.is_ascii_alphanumeric() || plain.contains(&byte) => char::from(byte).to_string(),
        byte if upper => format!("%{byte:02X}"),
        byte => format!("%{byte:02x}"),
    };
    secret.bytes().map(encoded).collect()
}

fn hex(secret: &str, upper: bool) -> String {
    secret.bytes().map(|byte| if upper { format!("{byte:02X}") } else { format!("{byte:02x}") }).collect()
}

/// Base64 depends on what stands before and after. Of each of the three ways to fall on groups of three
/// bytes, the characters that come of the secret alone.
fn base64_forms(secret: &[u8]) -> Vec<Vec<u8>> {
    let mut forms = Vec::new();
    for alphabet in [&alphabet::STANDARD, &alphabet::URL_SAFE] {
        let engine = GeneralPurpose::new(alphabet, NO_PAD);
        for before in 0..3 {
            let shifted = [&b"\0\0"[..before], secret].concat();
            let encoded = engine.encode(&shifted).into_bytes();
            let (first, end) = ((before * 8).div_ceil(6), shifted.len() * 8 / 6);
            forms.push(encoded.get(first..end).unwrap_or_default().to_vec());
        }
    }
    forms
}
