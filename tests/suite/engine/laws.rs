//! Whatever shares an exec, each host does what the playbook says, in its order, and once.

use std::collections::BTreeSet;

use etcdrun::model::RunResult;
use proptest::{prelude::*, test_runner::TestRunner};

use crate::support::engine::Bench;

const HOSTS: [&str; 2] = ["h1", "h2"];
const HANDLERS: [&str; 2] = ["First", "Second"];

#[derive(Clone, Debug)]
enum Item {
    Task(Kind, Option<usize>),
    Block { body: Vec<Item>, rescue: Vec<Item>, always: Vec<Item> },
    Flush,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Succeeds,
    Fails,
    FailsOnSecond,
    Ignored,
    Skipped,
    /// The operator must look at the result before anything else runs.
    Judged,
    /// Uses a result that only the operator has.
    Reads,
    Loops,
    Operator,
}

fn task() -> impl Strategy<Value = Item> {
    let kinds = prop_oneof![
        4 => Just(Kind::Succeeds),
        1 => Just(Kind::Fails),
        1 => Just(Kind::FailsOnSecond),
        1 => Just(Kind::Ignored),
        1 => Just(Kind::Skipped),
        1 => Just(Kind::Judged),
        1 => Just(Kind::Reads),
        1 => Just(Kind::Loops),
        1 => Just(Kind::Operator),
    ];
    (kinds, proptest::option::weighted(0.2, 0..HANDLERS.len())).prop_map(|(kind, notify)| Item::Task(kind, notify))
}

fn items() -> impl Strategy<Value = Vec<Item>> {
    let inner = task().prop_recursive(3, 24, 4, |item| {
        let part = |least| proptest::collection::vec(item.clone(), least..4);
        (part(1), part(0), part(0)).prop_map(|(body, rescue, always)| Item::Block { body, rescue, always })
    });
    let item = prop_oneof![9 => inner, 1 => Just(Item::Flush)];
    proptest::collection::vec(item, 1..8)
}

/// The items as YAML. Tasks are numbered in the order they are written.
struct Writer {
    text: String,
    number: usize,
}

impl Writer {
    fn items(&mut self, items: &[Item], depth: usize) {
        for item in items {
            let pad = "  ".repeat(depth);
            match item {
                Item::Task(kind, notify) => self.task(*kind, *notify, &pad),
                Item::Flush => self.text.push_str(&format!("{pad}- meta: flush_handlers\n")),
                Item::Block { body, rescue, always } => {
                    for (key, part) in [("- block", body), ("  rescue", rescue), ("  always", always)] {
                        if !part.is_empty() {
                            self.text.push_str(&format!("{pad}{key}:\n"));
                            self.items(part, depth + 2);
                        }
                    }
                }
            }
        }
    }

    fn task(&mut self, kind: Kind, notify: Option<usize>, pad: &str) {
        self.number += 1;
        let n = self.number;
        let say = |what: &str| format!("echo {what} >>DIR/{{{{ inventory_hostname }}}}");
        let log = say(&n.to_string());
        let rest = match kind {
            Kind::Succeeds => format!("shell: '{log}'"),
            Kind::Fails => format!("shell: '{log}; exit 3'"),
            Kind::FailsOnSecond => format!("shell: '{log}; test {{{{ inventory_hostname }}}} != h2'"),
            Kind::Ignored => format!("shell: '{log}; exit 3', ignore_errors: true"),
            Kind::Skipped => format!("shell: '{log}', when: inventory_hostname == 'nobody'"),
            Kind::Judged => format!("shell: '{log}', register: seen{n}, changed_when: seen{n}.rc == 0"),
            Kind::Reads => {
                let known = say(&format!("{n}{{{{ \"\" if last is defined else \"\" }}}}"));
                format!("shell: '{known}', register: last")
            }
            Kind::Loops => format!("shell: '{}', loop: [a, b]", say(&format!("{n}{{{{ item }}}}"))),
            Kind::Operator => "debug: { msg: hello }".to_owned(),
        };
        let notify = notify.map(|handler| format!(", notify: {}", HANDLERS[handler])).unwrap_or_default();
        self.text.push_str(&format!("{pad}- {{ name: Task {n}, {rest}{notify} }}\n"));
    }
}

fn playbook(items: &[Item]) -> String {
    let mut writer = Writer { text: "- hosts: all\n  tasks:\n".to_owned(), number: 0 };
    writer.items(items, 2);
    writer.text.push_str("  handlers:\n");
    for (name, notify) in [(HANDLERS[0], ", notify: Second"), (HANDLERS[1], "")] {
        let shell = format!("echo {name} >>DIR/{{{{ inventory_hostname }}}}");
        writer.text.push_str(&format!("    - {{ name: {name}, shell: '{shell}'{notify} }}\n"));
    }
    writer.text
}

/// What one host is expected to do: a plain walk over the items.
#[derive(Default)]
struct Walk {
    log: Vec<String>,
    number: usize,
    pending: BTreeSet<usize>,
}

impl Walk {
    /// Whether all went well; `runs` is false where the items are only counted.
    fn items(&mut self, items: &[Item], host: &str, runs: bool) -> bool {
        let mut fine = true;
        for item in items {
            fine &= self.item(item, host, runs && fine);
        }
        fine
    }

    fn item(&mut self, item: &Item, host: &str, runs: bool) -> bool {
        match item {
            Item::Task(kind, notify) => self.task(*kind, *notify, host, runs),
            Item::Flush => {
                if runs {
                    self.flush();
                }
                true
            }
            Item::Block { body, rescue, always } => {
                let body = self.items(body, host, runs);
                let rescues = runs && !body && !rescue.is_empty();
                let mended = self.items(rescue, host, rescues);
                let main = if rescues { mended } else { body };
                self.items(always, host, runs) && main
            }
        }
    }

    fn task(&mut self, kind: Kind, notify: Option<usize>, host: &str, runs: bool) -> bool {
        self.number += 1;
        if !runs {
            return true;
        }
        let n = self.number;
        match kind {
            Kind::Skipped | Kind::Operator => return true,
            Kind::Loops => self.log.extend([format!("{n}a"), format!("{n}b")]),
            _ => self.log.push(n.to_string()),
        }
        match kind {
            Kind::Fails => return false,
            Kind::FailsOnSecond if host == "h2" => return false,
            Kind::Ignored => {}
            _ => self.pending.extend(notify),
        }
        true
    }

    fn flush(&mut self) {
        for (position, name) in HANDLERS.iter().enumerate() {
            if self.pending.remove(&position) {
                self.log.push((*name).to_owned());
                // The first one notifies the second.
                self.pending.extend((position == 0).then_some(1));
            }
        }
    }
}

#[test]
fn each_host_does_what_is_written_in_order_and_once() {
    let bench = Bench::new(HOSTS.len());
    let config = ProptestConfig { max_shrink_iters: 200, failure_persistence: None, ..ProptestConfig::default() };
    let cases = std::env::var_os("PROPTEST_CASES").map_or(24, |_| config.cases);
    let mut runner = TestRunner::new(ProptestConfig { cases, ..config });
    runner.run(&items(), |items| keeps_to(&bench, &items)).unwrap_or_else(|failure| panic!("{failure}"));
}

fn keeps_to(bench: &Bench, items: &[Item]) -> Result<(), TestCaseError> {
    for host in HOSTS {
        bench.write(host, "");
    }
    let playbook = playbook(items);
    let report = bench.run(&playbook);
    let mut all_fine = true;
    for host in HOSTS {
        let mut walk = Walk::default();
        let fine = walk.items(items, host, true);
        if fine {
            walk.flush();
        }
        all_fine &= fine;
        let log = bench.read(host);
        prop_assert_eq!(log.lines().collect::<Vec<_>>(), walk.log, "{} of\n{}", host, &playbook);
    }
    prop_assert_eq!(report.result == RunResult::Success, all_fine, "{}", &playbook);
    Ok(())
}
