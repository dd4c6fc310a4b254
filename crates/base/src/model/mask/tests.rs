use base64::{
    Engine,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use proptest::prelude::*;
use serde_json::json;

use super::*;

fn masker(secrets: &[&str]) -> Masker {
    let masker = Masker::default();
    secrets.iter().for_each(|secret| assert!(masker.add(secret)));
    masker
}

#[test]
fn a_secret_is_found_inside_longer_text_and_in_other_forms() {
    let masker = masker(&["p4ss/w\"rd ü'1"]);
    let forms = [
        "p4ss/w\"rd ü'1",
        r#"p4ss/w\"rd ü'1"#,
        r#"p4ss/w\"rd \u00fc'1"#,
        "p4ss%2Fw%22rd%20%C3%BC%271",
        "p4ss%2fw%22rd%20%c3%bc%271",
        "p4ss/w%22rd%20%C3%BC%271",
        "p4ss%2Fw%22rd+%C3%BC%271",
        "p4ss/w\"rd ü'\\''1",
        "703473732f7722726420c3bc2731",
        "p4ss/w&quot;rd ü&#x27;1",
    ];
    for form in forms {
        let masked = masker.mask(&format!("a{form}b")).into_owned();
        assert!(masked.starts_with("a<secret>") && !masked.contains("p4ss"), "{form}: {masked}");
    }
    assert_eq!(masker.mask("nothing here"), "nothing here");
}

#[test]
fn lines_of_a_secret_are_secrets() {
    let masker = masker(&["-----BEGIN KEY-----\nMIIabcdef\nx\nghijklmn\n-----END KEY-----\n"]);
    assert_eq!(masker.mask("found MIIabcdef, x and ghijklmn"), "found <secret>, x and <secret>");
    assert!(!masker.mask("-----BEGIN KEY-----\r\nMIIabcdef\r\nx").contains("MII"));
}

#[test]
fn a_secret_that_is_wrapped_is_found() {
    let masker = masker(&["correct horse battery staple"]);
    assert_eq!(masker.mask("a correct hor\nse battery sta\nple b"), "a <secret> b");
}

/// As `grep --color` shows it: without its colours it would be whole again.
#[test]
fn a_secret_with_colour_codes_in_it_is_found() {
    let masker = masker(&["hunter2"]);
    for text in
        ["a hun\x1b[01;31m\x1b[Kter2\x1b[m b", "a hun\u{9b}1mter2 b", "a hu\x07nter2 b", "a hun\x1b]0;x\x07ter2 b"]
    {
        let masked = masker.mask(text).into_owned();
        assert!(masked.starts_with("a <secret>") && !masked.contains("ter2"), "{text:?}: {masked:?}");
    }
    let mut stream = masker.stream();
    let shown: String = ["a hun", "\x1b[3", "1mter2", " b"].iter().map(|piece| stream.push(piece.as_bytes())).collect();
    assert_eq!(shown + &stream.finish(), "a <secret> b");
}

#[test]
fn overlapping_secrets_leave_nothing_behind() {
    assert_eq!(masker(&["abcdef", "defghi"]).mask("xabcdefghiy"), "x<secret>y");
    assert_eq!(masker(&["abcdefgh", "cdef"]).mask("abcdefgh cdef"), "<secret> <secret>");
}

#[test]
fn short_secrets_are_told_and_not_masked() {
    let masker = Masker::default();
    assert!(!masker.add("abc") && !masker.add("") && !masker.add(" ab\n"));
    assert_eq!(masker.mask("abc"), "abc");
}

#[test]
fn values_are_masked_wherever_they_are_nested() {
    let masker = masker(&["hunter2", "123456"]);
    let mut value = json!({"a": ["x hunter2"], "hunter2": {"n": 123456, "m": 12}, "b": true});
    masker.mask_value(&mut value);
    assert_eq!(value, json!({"a": ["x <secret>"], "<secret>": {"n": "<secret>", "m": 12}, "b": true}));
}

#[test]
fn an_older_secret_does_not_show_in_a_diff() {
    let mut diff = Diff {
        label: "/etc/app".into(),
        before: "user=app\npassword=old\nport=1\n".into(),
        after: "user=app\npassword=hunter2\nport=1\n".into(),
    };
    masker(&["hunter2"]).mask_diff(&mut diff);
    assert_eq!(diff.before, "user=app\n<hidden: may be an older secret>\nport=1\n");
    assert_eq!(diff.after, "user=app\npassword=<secret>\nport=1\n");
}

#[test]
fn a_start_that_never_ends_is_not_shown() {
    let mut stream = masker(&["hunter2"]).stream();
    assert_eq!(stream.push(b"password: hunte"), "password: ");
    assert_eq!(stream.finish(), "<secret>");
    let mut stream = masker(&["hunter2"]).stream();
    assert_eq!(stream.push(b"a h") + &stream.finish(), "a h");
}

fn secret() -> impl Strategy<Value = String> {
    "[a-c]{4,9}|[ -~]{4,40}|[a-zäöü€ ]{4,12}[!-~]".prop_filter("long enough", |s| s.trim().chars().count() >= 4)
}

/// Text in pieces, cut anywhere, also inside characters.
fn in_pieces(masker: &Masker, text: &[u8], cuts: &[usize]) -> String {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (text.len() + 1)).chain([0, text.len()]).collect();
    cuts.sort_unstable();
    let mut stream = masker.stream();
    let mut shown: String = cuts.windows(2).map(|pair| stream.push(&text[pair[0]..pair[1]])).collect();
    shown += &stream.finish();
    shown
}

proptest! {
    #[test]
    fn no_secret_gets_through_whole(secrets in prop::collection::vec(secret(), 1..4), before in "[a-c ]{0,9}", after in "[a-c \n]{0,9}") {
        let masker = Masker::default();
        secrets.iter().for_each(|secret| { masker.add(secret); });
        for secret in &secrets {
            let masked = masker.mask(&format!("{before}{secret}{after}")).replace(MASK, "\u{0}");
            prop_assert!(!masked.contains(secret.trim()), "{masked:?}");
        }
    }

    #[test]
    fn base64_of_any_alignment_is_found(secret in "[!-~]{4,40}", before in prop::collection::vec(any::<u8>(), 0..7), after in prop::collection::vec(any::<u8>(), 0..7)) {
        let masker = masker(&[&secret]);
        let whole = [before.as_slice(), secret.as_bytes(), after.as_slice()].concat();
        for encoded in [STANDARD.encode(&whole), URL_SAFE_NO_PAD.encode(&whole)] {
            prop_assert!(masker.mask(&encoded).contains(MASK), "{encoded}");
        }
    }

    #[test]
    fn pieces_are_masked_as_the_whole_is(secrets in prop::collection::vec(secret(), 1..4), noise in "[a-cä\n ]{0,20}", cuts in prop::collection::vec(0usize..200, 0..8), order in any::<bool>()) {
        let masker = Masker::default();
        secrets.iter().for_each(|secret| { masker.add(secret); });
        let text = if order { noise + &secrets.concat() } else { secrets.concat() + &noise };
        let shown = in_pieces(&masker, text.as_bytes(), &cuts).replace(MASK, "\u{0}");
        for secret in &secrets {
            prop_assert!(!shown.contains(secret.trim()), "{shown:?}");
        }
    }

    #[test]
    fn pieces_without_secrets_come_through_as_they_are(text in "[d-zä€\n ]{0,40}", cuts in prop::collection::vec(0usize..200, 0..8)) {
        let masker = masker(&["ABCABC"]);
        prop_assert_eq!(in_pieces(&masker, text.as_bytes(), &cuts), text);
    }
}
