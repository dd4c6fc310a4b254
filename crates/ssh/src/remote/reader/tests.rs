use proptest::prelude::*;

use super::*;
use crate::{
    model::Ending,
    remote::{Payload, Step},
};

/// What one step writes: text, and markers with values between it.
#[derive(Clone, Debug)]
struct Written {
    stdout: Vec<Word>,
    stderr: Vec<u8>,
    code: u8,
}

#[derive(Clone, Debug)]
enum Word {
    Text(Vec<u8>),
    Set(Vec<u8>),
    Changed,
}

/// Bytes with many newlines, and as much of the nonce as makes no marker.
fn text() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        3 => Just(b"\n".to_vec()),
        1 => Just(Nonce::fixed().to_string().as_bytes()[..12].to_vec()),
        1 => Just(format!("{}.", Nonce::fixed()).into_bytes()),
        3 => proptest::collection::vec(any::<u8>(), 0..6),
    ];
    proptest::collection::vec(word, 0..8).prop_map(|words| words.concat())
}

fn written() -> impl Strategy<Value = Written> {
    let word = prop_oneof![3 => text().prop_map(Word::Text), 2 => text().prop_map(Word::Set), 1 => Just(Word::Changed)];
    let code = prop_oneof![4 => Just(0u8), 1 => any::<u8>()];
    (proptest::collection::vec(word, 0..5), text(), code).prop_map(|(stdout, stderr, code)| Written {
        stdout,
        stderr,
        code,
    })
}

/// Both streams as a runner would write them, and how many steps it would run.
fn streams(steps: &[Written]) -> (Vec<u8>, Vec<u8>, usize) {
    let nonce = Nonce::fixed();
    let (mut out, mut err) = (b"noise\n".to_vec(), b"more noise".to_vec());
    for (number, step) in steps.iter().enumerate() {
        out.extend_from_slice(format!("{nonce} begin {number} 42\n").as_bytes());
        // Where there is nothing, there need not be markers.
        let is_quiet = step.stderr.is_empty();
        if !is_quiet {
            err.extend_from_slice(format!("{nonce} begin {number}\n").as_bytes());
        }
        for word in &step.stdout {
            match word {
                Word::Text(text) => out.extend_from_slice(text),
                Word::Changed => out.extend_from_slice(format!("{nonce} changed\n").as_bytes()),
                Word::Set(text) => {
                    out.extend_from_slice(format!("{nonce} set name\n").as_bytes());
                    out.extend_from_slice(text);
                    out.extend_from_slice(format!("{nonce} endtext\n").as_bytes());
                }
            }
        }
        err.extend_from_slice(&step.stderr);
        let quiet = if is_quiet { " quiet" } else { "" };
        out.extend_from_slice(format!("{nonce} end {number} {}{quiet}\n", step.code).as_bytes());
        if !is_quiet {
            err.extend_from_slice(format!("{nonce} end {number}\n").as_bytes());
        }
        if step.code != 0 {
            out.extend_from_slice(format!("{nonce} done\n").as_bytes());
            return (out, err, number + 1);
        }
    }
    out.extend_from_slice(format!("{nonce} done\n").as_bytes());
    (out, err, steps.len())
}

fn reader(steps: usize) -> Reader {
    let step = Step::plain(Payload::new("").capture());
    Reader::new(&Segment { steps: vec![step; steps] }, &Nonce::fixed())
}

/// Reads both streams, cut and interleaved as `cuts` says.
fn read(steps: usize, out: &[u8], err: &[u8], cuts: &[(bool, usize)]) -> Vec<Event> {
    let mut reader = reader(steps);
    let mut events = Vec::new();
    let (mut out, mut err) = (out, err);
    let mut turns = cuts.iter().cycle();
    while !out.is_empty() || !err.is_empty() {
        let &(error, length) = turns.next().unwrap();
        let (rest, source) = match error && !err.is_empty() || out.is_empty() {
            true => (&mut err, Source::Stderr),
            false => (&mut out, Source::Stdout),
        };
        let (chunk, tail) = rest.split_at(length.min(rest.len()));
        *rest = tail;
        reader.push(source, chunk);
        while let Some(event) = reader.next().unwrap() {
            events.push(event);
        }
    }
    events
}

fn trimmed(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_end_matches(['\n', '\r']).to_owned()
}

proptest! {
    #[test]
    fn steps_come_out_whole_and_in_order_however_the_streams_are_cut(
        steps in proptest::collection::vec(written(), 1..5),
        cuts in proptest::collection::vec((any::<bool>(), 1usize..40), 1..12),
    ) {
        let (out, err, ran) = streams(&steps);
        let events = read(steps.len(), &out, &err, &cuts);
        let mut current = None;
        let mut finished = 0;
        let mut done = false;
        for event in &events {
            match event {
                Event::Started { step, runner } => {
                    prop_assert_eq!((current, *step, *runner), (None, finished, 42));
                    current = Some(*step);
                }
                Event::Output { step, .. } => prop_assert_eq!(current, Some(*step)),
                Event::Finished { step, outcome } => {
                    prop_assert_eq!(current.take(), Some(*step));
                    let written = &steps[*step];
                    let texts = written.stdout.iter().filter_map(|word| match word {
                        Word::Text(text) => Some(text.clone()),
                        _ => None,
                    });
                    prop_assert_eq!(&outcome.stdout, &trimmed(&texts.collect::<Vec<_>>().concat()));
                    prop_assert_eq!(&outcome.stderr, &trimmed(&written.stderr));
                    prop_assert_eq!(outcome.rc, Some(i32::from(written.code)));
                    prop_assert_eq!(outcome.changed, written.stdout.iter().any(|word| matches!(word, Word::Changed)));
                    let last = written.stdout.iter().rev().find_map(|word| match word {
                        Word::Set(text) => Some(String::from_utf8_lossy(text).into_owned()),
                        _ => None,
                    });
                    prop_assert_eq!(outcome.data.get("name").and_then(|value| value.as_str()), last.as_deref());
                    finished += 1;
                }
                Event::File { .. } => prop_assert!(false, "there is no file"),
                Event::Done => done = true,
            }
        }
        prop_assert!(done);
        prop_assert_eq!(finished, ran);
    }

    #[test]
    fn any_bytes_at_all_end_in_events_or_an_error(
        out in proptest::collection::vec(text(), 0..6),
        words in proptest::collection::vec("(begin|end|set|endtext|done|changed|label|before|x)( [0-9a-z]{0,3}){0,2}", 0..8),
    ) {
        let mut reader = reader(2);
        for (text, word) in out.iter().zip(&words) {
            reader.push(Source::Stdout, text);
            reader.push(Source::Stdout, format!("{} {word}\n", Nonce::fixed()).as_bytes());
            reader.push(Source::Stderr, format!("{} {word}\n", Nonce::fixed()).as_bytes());
            while let Ok(Some(_)) = reader.next() {}
        }
    }
}

fn one_step() -> Reader {
    Reader::for_one(true, &Nonce::fixed())
}

/// Pushes pieces until the reader has had enough; fails if it never has.
fn flooded(reader: &mut Reader, source: Source, piece: &[u8], most: usize) -> String {
    for _ in 0..most / piece.len() {
        reader.push(source, piece);
        loop {
            match reader.next() {
                Ok(None) => break,
                Ok(Some(_)) => {}
                Err(error) => return error.to_string(),
            }
        }
    }
    panic!("{most} bytes were taken without a word");
}

#[test]
fn a_stream_that_runs_ahead_for_good_is_refused() {
    let mut reader = one_step();
    let nonce = Nonce::fixed();
    reader.push(Source::Stdout, format!("{nonce} begin 0 42\n").as_bytes());
    reader.push(Source::Stderr, format!("{nonce} begin 0\n{nonce} end 0\n").as_bytes());
    let piece = vec![b'x'; 1 << 20];
    let why = flooded(&mut reader, Source::Stderr, &piece, 2 * BACKLOG_LIMIT);
    assert!(why.contains("more than 64 MiB on one stream"), "{why}");
}

#[test]
fn results_of_any_number_and_size_are_bounded() {
    let nonce = Nonce::fixed();
    let large = "x".repeat(1 << 20);
    let words: [&dyn Fn(usize) -> String; 4] = [
        &|number| format!("{nonce} set n{number}\n{large}{nonce} endtext\n"),
        &|number| format!("{nonce} label\n{number}{nonce} endtext\n{nonce} before\n{nonce} endtext\n"),
        &|number| format!("{nonce} set n{number}\n{nonce} endtext\n"),
        &|number| format!("{nonce} json n{number}\n[{}0]{nonce} endtext\n", "[],".repeat(1000)),
    ];
    for (kind, word) in words.iter().enumerate() {
        let mut reader = one_step();
        reader.push(Source::Stdout, format!("{nonce} begin 0 42\n").as_bytes());
        let mut sent = 0;
        for number in 0.. {
            let text = word(number);
            sent += text.len();
            reader.push(Source::Stdout, text.as_bytes());
            while reader.next().unwrap().is_some() {}
            if sent > 80 << 20 || number > 600_000 {
                break;
            }
        }
        assert!(reader.gathering.size() < 80 << 20, "{kind}");
        // Results over the limit are dropped. What happened to a member is none of them.
        reader.push(Source::Stdout, format!("{nonce} ending member_lost\n{nonce} end 0 0 quiet\n").as_bytes());
        let mut last = None;
        while let Some(event) = reader.next().unwrap() {
            last = Some(event);
        }
        let Some(Event::Finished { outcome, .. }) = last else { panic!("{kind}: {last:?}") };
        assert!(outcome.failed && outcome.msg.contains("more than 64 MiB of results"), "{kind}: {}", outcome.msg);
        assert_eq!(outcome.ending, Ending::MemberLost, "{kind}");
    }
}

#[test]
fn steps_that_each_keep_within_their_limit_have_one_together() {
    let nonce = Nonce::fixed();
    let mut reader = Reader::with(vec![true; 1000], &nonce);
    let large = "x".repeat(7 << 20);
    for step in 0..1000 {
        let text = format!("{nonce} begin {step} 42\n{large}{nonce} end {step} 0 quiet\n");
        reader.push(Source::Stdout, text.as_bytes());
        loop {
            match reader.next() {
                Ok(None) => break,
                Ok(Some(_)) => {}
                Err(error) => {
                    assert!(error.to_string().contains("more than 512 MiB of results"), "{error}");
                    assert!(step < 100);
                    return;
                }
            }
        }
    }
    panic!("there was no end to it");
}
