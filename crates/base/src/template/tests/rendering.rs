//! Scopes, native types, strictness, and what the messages say.

use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::template::DynamicLayer;

#[test]
fn one_expression_keeps_its_type() {
    let mut bench = Bench::new();
    let scope = bench.scope("{n: 3, list: [1, two], map: {a: true}, text: hi, nothing: ~}");
    let rendered = bench.render(
        "{n: '{{ n }}', list: '{{ list }}', map: '{{map}}', flag: '{{ map.a }}', nothing: '{{ nothing }}', \
          text: 'n={{ n }}', twice: '{{ n }}{{ n }}', trimmed: '{{- n -}}', raw: '{{ \"{{\" }}', sum: '{{ n + 0.5 }}', \
          padded: ' {{ n }}', none: 'a{{ nothing }}b', flag_text: 'is {{ map.a }}'}",
        &scope,
    );
    let expected = json!({
        "n": 3, "list": [1, "two"], "map": {"a": true}, "flag": true, "nothing": null,
        "text": "n=3", "twice": "33", "trimmed": 3, "raw": "{{", "sum": 3.5,
        "padded": " 3", "none": "ab", "flag_text": "is True",
    });
    assert_eq!(rendered, Ok(expected));
}

#[test]
fn spans_and_plain_values_survive() {
    let mut bench = Bench::new();
    let scope = bench.scope("{a: 1}");
    let node = bench.node("x: [plain, '{{ a }}']\ny: !unsafe '{{ a }}'\n");
    let rendered = bench.engine.render_node(&node, &scope).unwrap();
    assert_eq!(rendered.to_value(), json!({"x": ["plain", 1], "y": "{{ a }}"}));
    let (before, after) = (node.as_map().unwrap(), rendered.as_map().unwrap());
    assert_eq!(before.get("x").unwrap().as_seq().unwrap()[1].span, after.get("x").unwrap().as_seq().unwrap()[1].span);
}

#[test]
fn the_last_layer_wins_also_inside_lower_ones() {
    let mut bench = Bench::new();
    let low = bench.vars("{name: low, greeting: 'hello {{ name }}', list: ['{{ name }}']}");
    let high = bench.vars("{name: high}");
    let scope = Scope::new(vec![low, high]);
    assert_eq!(bench.eval("greeting", &scope), Ok(json!("hello high")));
    assert_eq!(bench.eval("list", &scope), Ok(json!(["high"])));
    let item = Layer::Values(Arc::new(json!({"name": "{{ top }}"}).as_object().unwrap().clone()));
    assert_eq!(bench.eval("greeting", &scope.with(item)), Ok(json!("hello {{ top }}")), "values are not rendered");
    assert_eq!(bench.eval("greeting", &scope), Ok(json!("hello high")), "the scope below is unchanged");
    assert_eq!(scope.names(), ["greeting", "list", "name"]);
    assert_eq!(scope.get(&bench.engine, "greeting"), Ok(Some(json!("hello high"))));
    assert_eq!(scope.get(&bench.engine, "nobody"), Ok(None));
}

#[test]
fn collections_render_only_what_is_asked_for() {
    let mut bench = Bench::new();
    let scope =
        bench.scope("{etcd: {version: 3.5.26, leader: '{{ late }}', all: ['{{ late }}', '{{ etcd.version }}']}}");
    assert_eq!(bench.eval("etcd.version", &scope), Ok(json!("3.5.26")));
    assert_eq!(bench.eval("etcd.all[1]", &scope), Ok(json!("3.5.26")));
    assert_eq!(bench.eval("etcd.all[-1]", &scope), Ok(json!("3.5.26")));
    assert_eq!(bench.eval("etcd.all | length", &scope), Ok(json!(2)));
    assert!(bench.eval("etcd", &scope).is_err());
    let full = bench.eval("etcd", &scope.with(bench_value("late", "etcd-1"))).unwrap();
    assert_eq!(full["leader"], "etcd-1");
}

fn bench_value(name: &str, text: &str) -> Layer {
    Layer::Values(Arc::new([(name.to_owned(), json!(text))].into_iter().collect()))
}

#[test]
fn registered_results_are_data() {
    let mut bench = Bench::new();
    let result =
        json!({"r": {"stdout": "{{ boom }}", "rc": 0, "stdout_lines": ["a", "b"], "changed": true, "big": u64::MAX}});
    let scope = Scope::new(vec![Layer::Values(Arc::new(result.as_object().unwrap().clone()))]);
    assert_eq!(bench.eval("r.stdout", &scope), Ok(json!("{{ boom }}")));
    assert_eq!(bench.eval("r.stdout_lines[1] ~ r.rc", &scope), Ok(json!("b0")));
    assert_eq!(bench.eval("r.big", &scope), Ok(json!(u64::MAX)));
    assert_eq!(bench.holds("r is changed and r is succeeded and r is not skipped", &scope), Ok(true));
    assert_eq!(bench.eval("r", &scope), Ok(result["r"].clone()));
}

#[test]
fn omit_leaves_entries_out() {
    let mut bench = Bench::new();
    let scope = bench.scope("{given: 1, same: '{{ nobody | default(omit) }}'}");
    let rendered = bench.render(
        "{a: '{{ given | default(omit) }}', b: '{{ nobody | default(omit) }}', c: '{{ same }}', d: [1, '{{ omit }}'], \
          e: '{{ {\"x\": omit, \"y\": 1} }}'}",
        &scope,
    );
    assert_eq!(rendered, Ok(json!({"a": 1, "d": [1], "e": {"y": 1}})));
    let problem = bench.render("x{{ omit }}", &scope).unwrap_err();
    assert!(problem.message.contains("`omit`"), "{}", problem.message);
}

#[test]
fn default_and_defined_forgive_a_whole_path() {
    let mut bench = Bench::new();
    let scope = bench.scope("{map: {inner: {x: 1}}, list: [1], empty: '', i: 0}");
    for (expression, expected) in [
        ("nobody | default(1)", json!(1)),
        ("nobody.a.b | default(1)", json!(1)),
        ("map.nothing.at.all | d(1)", json!(1)),
        ("map.inner.x | default(2)", json!(1)),
        ("map['inner'].x | default(2)", json!(1)),
        ("map[nobody.key | default('inner')].x | default(2)", json!(1)),
        ("(map.nothing).x | default(2)", json!(2)),
        ("list[5].x | default(2)", json!(2)),
        ("list.0 | default(2)", json!(1)),
        ("list[i] | default(2)", json!(1)),
        ("empty | default('e')", json!("")),
        ("empty | default('e', true)", json!("e")),
        ("empty | default('e', boolean=true)", json!("e")),
        ("nobody.a | ansible.builtin.default(1) | ansible.builtin.to_json", json!("1")),
        ("nobody.a is defined", json!(false)),
        ("nobody.a.b is undefined", json!(true)),
        ("map.inner.x is defined and map.inner.x == 1", json!(true)),
        ("nobody.a is defined and nobody.a.b", json!(false)),
        ("nobody.a if nobody.a is defined else 'no'", json!("no")),
    ] {
        assert_eq!(bench.eval(expression, &scope), Ok(expected), "{expression}");
    }
}

#[test]
fn conditions_are_booleans() {
    let mut bench = Bench::new();
    let scope = bench.scope("{yes: true, text: 'no', n: 1, list: [1], map: {a: 1}, nothing: ~, lazy: '{{ n == 1 }}'}");
    assert_eq!(bench.holds("yes", &scope), Ok(true));
    assert_eq!(bench.holds("{{ yes and not lazy }}", &scope), Ok(false));
    assert_eq!(bench.holds("text | bool", &scope), Ok(false));
    let mut shown = String::new();
    for expression in ["text", "n", "list", "map", "nothing", "nobody", "n ==", "yes and nobody.x", "n | bool2"] {
        let problem = bench.holds(expression, &scope).unwrap_err();
        shown += &format!("{expression}\n{}\n", bench.show(&problem));
    }
    insta::assert_snapshot!(shown);
}

#[test]
fn errors_name_the_place_and_the_way_out() {
    let mut bench = Bench::new();
    let scope = bench.scope(
        "version: 3.5.26\nr: {stdout: x, stderr: y}\nbroken: \"{{ versoin }}\"\nuser: \"at {{ broken }}\"\n\
         a: '{{ b }}'\nb: ['{{ c.x }}']\nc: {x: '{{ a }}'}\n",
    );
    let mut shown = String::new();
    for yaml in [
        "x: \"etcd {{ versoin }}\"",
        "x: etcd {{ version }} {{ versoin | upper }}",
        "x: '{{ r.stdot }}'",
        "x: '{{ r.nothing_like_it }}'",
        "x: '{{ version.major }}'",
        "x: '{{ user }}'",
        "x: '{{ a }}'",
        "x: '{{ version + 1 }}'",
        "x: '{{ version | uper }}'",
        "x: '{{ version is mach(1) }}'",
        "x: '{{ lookup(\"env\", \"HOME\") }}'",
        "x: '{{ version'",
        "x: '{% if version %}no end'",
        "x: '{{ \"a\" if version == 1 }}'",
        "x: |\n  first\n  second {{ nobody }}\n",
        "x: '{% include \"other\" %}'",
        "x: '{{ undef(hint=\"set the version\") }}'",
        "x: '{{ nobody | mandatory }}'",
        "x: '{{ [1, nobody] | join(\",\") }}'",
        "x: '{% for x in nobody %}{% endfor %}'",
        "x: '{{ range }}'",
    ] {
        let problem = bench.render(yaml, &scope).unwrap_err();
        shown += &format!("{yaml}\n{}\n", bench.show(&problem));
    }
    insta::assert_snapshot!(shown);
}

#[test]
fn a_variable_is_rendered_once_a_call_and_failures_do_not_multiply() {
    // Each of these would take 2^30 steps if nothing were remembered.
    let mut bench = Bench::new();
    let mut good = String::from("v30: 1\n");
    let mut bad = String::from("v30: '{{ nobody }}'\n");
    for n in 0..30 {
        let line = format!("v{n}: '{{{{ v{} + v{} }}}}'\n", n + 1, n + 1);
        good += &line;
        bad += &line;
    }
    let good = bench.scope(&good);
    assert_eq!(bench.eval("v0", &good), Ok(json!(1 << 30)));
    let bad = bench.scope(&bad);
    assert_eq!(bench.eval("v0", &bad).unwrap_err().message, "`nobody` is undefined");
}

#[test]
fn a_failed_item_is_an_error_in_comparisons_too() {
    let mut bench = Bench::new();
    let scope = bench.scope(
        "{a: [1, '{{ nobody }}'], b: [1, '{{ nobody }}'], c: {x: 1, y: 2}, d: {y: 2, x: 1}, e: ['{{ c.x }}', 2]}",
    );
    for expression in
        ["a == b", "a == a", "a == [1]", "a < b", "[a, b] | sort", "[b, a] | unique", "2 in a", "a | union(b)"]
    {
        let problem = bench.eval(expression, &scope).map_err(|problem| problem.message);
        assert_eq!(problem, Err("`nobody` is undefined".into()), "{expression}");
    }
    for expression in ["c == d", "e == [1, 2]", "c != e", "e is sequence", "a | length == 2", "a[0] == 1"] {
        assert_eq!(bench.holds(expression, &scope), Ok(true), "{expression}");
    }
}

struct Others(Engine, Vec<(String, Scope)>);

impl DynamicLayer for Others {
    fn get(&self, name: &str) -> Option<minijinja::Value> {
        let entries = self.1.iter().map(|(host, scope)| (host.clone(), scope.to_object(&self.0)));
        (name == "hostvars").then(|| minijinja::Value::from_pairs(entries))
    }

    fn contains(&self, name: &str) -> bool {
        name == "hostvars"
    }

    fn names(&self) -> Vec<String> {
        vec!["hostvars".into()]
    }
}

#[test]
fn other_hosts_variables_render_in_their_own_scope() {
    let mut bench = Bench::new();
    let shared = bench.vars("{url: 'http://{{ address }}'}");
    let hosts = ["10.0.0.1", "10.0.0.2"].iter().enumerate().map(|(n, address)| {
        let own = bench_value("address", address);
        (format!("etcd-{}", n + 1), Scope::new(vec![shared.clone(), own]))
    });
    let hosts: Vec<_> = hosts.collect();
    let others = Layer::Dynamic(Arc::new(Others(bench.engine.clone(), hosts.clone())));
    let scope = hosts[0].1.with(others);
    assert_eq!(bench.eval("hostvars['etcd-2'].url ~ ' ' ~ url", &scope), Ok(json!("http://10.0.0.2 http://10.0.0.1")));
    let all = bench.eval("['etcd-1', 'etcd-2'] | map('extract', hostvars, 'url') | list", &scope);
    assert_eq!(all, Ok(json!(["http://10.0.0.1", "http://10.0.0.2"])));
}

fn no_files(_: &str) -> Option<String> {
    None
}

#[test]
fn template_files_trim_blocks_and_keep_the_last_line_end() {
    let mut bench = Bench::new();
    let scope = bench.scope("{members: [a, b], name: x}");
    let text = "# {{ name }}\n{% for m in members %}\n- {{ m }}\n{% endfor %}\nend\n";
    assert_eq!(bench.engine.render_file("x.j2", text, &no_files, &scope), Ok("# x\n- a\n- b\nend\n".into()));
}

#[test]
fn template_files_include_others() {
    let mut bench = Bench::new();
    let scope = bench.scope("{members: [a, b], name: x}");
    let files = |name: &str| match name {
        "member.j2" => Some("- {{ m }}/{{ name }}\n".to_owned()),
        "macros.j2" => Some("{% macro shout(word) %}{{ word | upper }}{% endmacro %}".to_owned()),
        "base.j2" => Some("<{% block body %}{% endblock %}>".to_owned()),
        "bad.j2" => Some("ok\n{{ m }} {{ nme }}".to_owned()),
        _ => None,
    };
    let render = |text: &str| bench.engine.render_file("main.j2", text, &files, &scope);
    let text = "{% from 'macros.j2' import shout %}{% for m in members %}\n{% include 'member.j2' %}{% endfor %}{{ shout('x') }}";
    assert_eq!(render(text), Ok("- a/x\n- b/x\nX".into()));
    assert_eq!(render("{% extends 'base.j2' %}{% block body %}{{ name }}{% endblock %}"), Ok("<x>".into()));
    assert_eq!(render("a{% include 'none.j2' ignore missing %}b"), Ok("ab".into()));
    let mut shown = String::new();
    for text in [
        "line\n{{ nobody }}\n",
        "line\n{{ nobody.x | default('') }} {{ nme }}\n",
        "{% for m in members %}{% include 'bad.j2' %}{% endfor %}",
        "{% include 'none.j2' %}",
        "{% include name ~ '.j2' %}",
        "{% if %}",
        "{% include 'main.j2' %}",
    ] {
        shown += &format!("{text:?}\n{}\n", bench.show(&render(text).unwrap_err()));
    }
    insta::assert_snapshot!(shown);
}

#[test]
fn an_included_file_that_changed_is_read_again() {
    let mut bench = Bench::new();
    let scope = bench.scope("{}");
    let render = |part: &'static str| {
        bench.engine.render_file("m.j2", "{% include 'p' %}", &move |_| Some(part.to_owned()), &scope)
    };
    assert_eq!(render("one"), Ok("one".into()));
    assert_eq!(render("two"), Ok("two".into()));
}

#[test]
fn engines_are_shared_between_threads() {
    let mut bench = Bench::new();
    let scope = bench.scope("{a: '{{ b }}', b: '{{ c ~ 1 }}', c: x}");
    let span = bench.span("a");
    let engine = &bench.engine;
    let scope = &scope;
    std::thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(move || {
                for _ in 0..200 {
                    assert_eq!(engine.eval("a ~ b", span, scope), Ok(json!("x1x1")));
                }
            });
        }
    });
}
