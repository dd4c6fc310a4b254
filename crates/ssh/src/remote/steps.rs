//! What a segment's steps become in a script.

use super::{Entry, OnFailure, Runs, Segment, Step, script::quoted};
use crate::shell::quote_onto;

/// Writes all steps.
pub(super) fn add(script: &mut Vec<u8>, segment: &Segment, is_fenced: bool) {
    let mut bodies = Vec::new();
    let mut glances = Glances::default();
    let is_alone = segment.steps.len() == 1;
    for (number, step) in segment.steps.iter().enumerate() {
        glances.add(script, &segment.steps[number..]);
        let how = how_it_runs(step, is_alone);
        let body = match how {
            Runs::Program => 0,
            Runs::Body | Runs::Brief => add_body(script, &mut bodies, step.payload.body),
        };
        match how {
            Runs::Brief => add_brief(script, step, body),
            Runs::Program | Runs::Body => add_step(script, number, step, how, body, is_fenced && step.fenced),
        }
    }
}

/// As its payload would like it, if nothing else is to be set up around it. The runner could not tidy up behind a body that
/// check mode has shut off from everything.
fn how_it_runs(step: &Step, is_alone: bool) -> Runs {
    let is_bare = !step.check_mode && step.payload.watch.is_none();
    match step.payload.runs {
        Runs::Brief if is_bare && is_alone && !step.fenced && step.entry.is_none() => Runs::Brief,
        // Its output is not wanted as it comes, either.
        Runs::Program
            if is_bare && step.environment.is_empty() && step.entry.as_ref().is_some_and(|entry| !entry.live) =>
        {
            Runs::Program
        }
        _ => Runs::Body,
    }
}

/// Looks at the files of steps in a row before the first of them.
#[derive(Default)]
struct Glances {
    /// How many of the steps to come were looked at.
    left: usize,
    /// What was seen is still there.
    kept: bool,
}

impl Glances {
    /// At once. What they say is a moment old when the last one comes.
    const MOST: usize = 50;

    fn add(&mut self, script: &mut Vec<u8>, steps: &[Step]) {
        if self.left > 0 {
            self.left -= 1;
            return;
        }
        let mut words: Vec<&str> = Vec::new();
        for word in steps.iter().map_while(|step| step.payload.glance.as_deref()).take(Self::MOST) {
            // Who comes second must see what the first has left.
            if words.iter().any(|other| path_of(other) == path_of(word)) {
                break;
            }
            words.push(word);
        }
        if words.len() > 1 {
            self.left = words.len() - 1;
            script.extend_from_slice(b"_glance");
            words.iter().for_each(|word| add_value(script, " ", word.as_bytes()));
            script.push(b'\n');
        } else if self.kept {
            script.extend_from_slice(b"_glances=\n");
        }
        self.kept = words.len() > 1;
    }
}

fn path_of(glance: &str) -> &str {
    glance.split_once(':').map_or(glance, |(_, path)| path)
}

/// The room that steps take at most. Room that is not needed costs time, because all of it is wiped in the end.
pub(super) fn size_at_most(segment: &Segment) -> usize {
    segment.steps.iter().map(size_of_step).sum::<usize>() + size_of_bodies(segment)
}

fn size_of_step(step: &Step) -> usize {
    let quotable = |bytes: &[u8]| bytes.len() + 3 * bytes.iter().filter(|&&byte| byte == b'\'').count() + 16;
    let values = step.payload.values.iter().map(|(name, value)| name.len() + quotable(value));
    let args = step.payload.args.iter().map(|arg| quotable(arg));
    let environment = step.environment.iter().map(|(name, value)| name.len() + quotable(value.as_bytes()));
    let watch = step.payload.watch.as_ref().map_or(0, |watch| watch.size());
    let glance = step.payload.glance.as_ref().map_or(0, |glance| quotable(glance.as_bytes()));
    values.chain(args).chain(environment).sum::<usize>() + watch + glance + 600
}

/// Each counts once.
fn size_of_bodies(segment: &Segment) -> usize {
    let mut bodies: Vec<&str> = Vec::new();
    for step in &segment.steps {
        if !bodies.contains(&step.payload.body) {
            bodies.push(step.payload.body);
        }
    }
    bodies.iter().map(|body| body.len() + 64).sum()
}

/// Each distinct body is sent once, as a function. Returns its number.
fn add_body(script: &mut Vec<u8>, bodies: &mut Vec<&'static str>, body: &'static str) -> usize {
    if let Some(known) = bodies.iter().position(|other| *other == body) {
        return known;
    }
    let number = bodies.len();
    bodies.push(body);
    // A function must not be empty, even where a body is nothing but comments.
    script.extend_from_slice(format!("_body{number}() {{\n:\n{body}\n}}\n").as_bytes());
    number
}

/// The step alone in its segment runs in the runner itself, which ends with it.
fn add_brief(script: &mut Vec<u8>, step: &Step, body: usize) {
    script.extend_from_slice(b"_begin_brief 0\n");
    add_surroundings(script, step);
    script.extend_from_slice(format!("_body{body}").as_bytes());
    step.payload.args.iter().for_each(|value| add_value(script, " ", value));
    script.extend_from_slice(b" 2>&1\nexit\n");
}

/// The values that the body of a step finds.
fn add_surroundings(script: &mut Vec<u8>, step: &Step) {
    for (name, on) in [("CHECK", step.check_mode), ("DIFF", step.diff)] {
        script.extend_from_slice(format!("{name}={}\n", if on { "1" } else { "''" }).as_bytes());
    }
    for (name, value) in step.environment.iter() {
        add_value(script, &format!("export {name}="), value.as_bytes());
        script.push(b'\n');
    }
    for (name, value) in &step.payload.values {
        add_value(script, &format!("arg_{name}="), value);
        script.push(b'\n');
    }
    let shut = if step.check_mode { "_shut\n" } else { "" };
    script.extend_from_slice(format!("set -u\n{shut}").as_bytes());
}

fn add_step(script: &mut Vec<u8>, number: usize, step: &Step, how: Runs, body: usize, is_fenced: bool) {
    let on_failure = match step.on_failure {
        OnFailure::Stop => "stop",
        OnFailure::StopLater => "stop_later",
        OnFailure::GoOn => "go_on",
    };
    // What a step writes to files comes from there when it has ended.
    let is_quiet = step.entry.as_ref().is_some_and(|entry| !entry.live);
    let begin = if is_quiet { "_begin_quiet" } else { "_begin" };
    script.extend_from_slice(format!("{begin} {number}\n").as_bytes());
    if is_fenced {
        // What has begun already is not begun again; what became of it can still be told.
        let begun =
            step.entry.as_ref().map(|entry| format!("_begun {} {} || ", quoted(&entry.run), quoted(&entry.name)));
        script.extend_from_slice(format!("_fence || {}_unheld {number}\n", begun.unwrap_or_default()).as_bytes());
    }
    if let Some(entry) = &step.entry {
        script.extend_from_slice(before_entry(entry, number, on_failure).as_bytes());
    }
    if how == Runs::Program {
        script.extend_from_slice(b"_run_program");
        step.payload.args.iter().for_each(|value| add_value(script, " ", value));
        script.extend_from_slice(format!("\n{}", end_of_entry(number, on_failure)).as_bytes());
        return;
    }
    script.extend_from_slice(b"(\n");
    add_surroundings(script, step);
    let watch = step.payload.watch.as_deref();
    if let Some(watch) = watch {
        watch.add_call(script);
        script.extend_from_slice(b"(\n");
    }
    script.extend_from_slice(format!("_body{body}").as_bytes());
    step.payload.args.iter().for_each(|value| add_value(script, " ", value));
    if watch.is_some() {
        script.extend_from_slice(b"\n)\n_kept $?");
    }
    // What a step leaves running is no runner.
    let unwatched = if is_fenced { " 9<&-" } else { "" };
    let end = match &step.entry {
        Some(entry) => after_entry(entry, number, on_failure, unwatched),
        None => format!("\n){unwatched}\n_end {number} $? {on_failure}\n"),
    };
    script.extend_from_slice(end.as_bytes());
}

/// Asks the ledger, and goes on only if the step has never been started.
fn before_entry(entry: &Entry, number: usize, on_failure: &str) -> String {
    let (run, name) = (quoted(&entry.run), quoted(&entry.name));
    let since = entry.since.map_or_else(|| "''".to_owned(), |seconds| seconds.to_string());
    let background = if entry.live { "(\n" } else { "" };
    format!("_enter {run} {name} {since}\nif [ $_todo != run ]; then _recall {number} {on_failure}\nelse\n{background}")
}

fn end_of_entry(number: usize, on_failure: &str) -> String {
    format!("_end {number} $_code {on_failure}\nfi\n")
}

/// The step writes to files, its markers to one of their own.
fn after_entry(entry: &Entry, number: usize, on_failure: &str, unwatched: &str) -> String {
    let files = format!("3>\"$_entry.marks\" >\"$_entry.out\" 2>\"$_entry.err\"{unwatched}");
    let end = end_of_entry(number, on_failure);
    match entry.live {
        false => format!("\n) {files}\n_code=$?\n_leave_entry $_code\n_show\n{end}"),
        true => format!("\n) {files}\n_leave_entry $?\n) &\n_follow $!\nwait\n_code_of {number}\n{end}"),
    }
}

fn add_value(script: &mut Vec<u8>, before: &str, value: &[u8]) {
    script.extend_from_slice(before.as_bytes());
    quote_onto(script, value);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remote::Payload;

    #[test]
    fn files_of_steps_in_a_row_are_looked_at_together() {
        let file = |path: &str| Step::plain(Payload::new("true").glance(path, 7));
        let steps = vec![
            file("/a"),
            file("/b"),
            file("/a"),
            Step::plain(Payload::new("true")),
            file("/c"),
            file("/has blank"),
            file("/d"),
            file("/e"),
        ];
        let mut script = Vec::new();
        add(&mut script, &Segment { steps }, false);
        let text = String::from_utf8(script).unwrap();
        let told: Vec<_> = text.lines().filter(|line| line.starts_with("_glance ") || *line == "_glances=").collect();
        assert_eq!(told, ["_glance '7:/a' '7:/b'", "_glances=", "_glance '7:/d' '7:/e'"]);
    }
}
