//! The names a template uses.

use crate::template::{
    Analysis, NameUse, guards_in_expression, is_in_braces, names_in_expression, names_in_file, names_in_template,
    unknown_callables,
};

/// `a.b` for a name that must be there, `a.b?` if it may be missing, `a?.b` if only its root may.
fn shown(names: &[NameUse]) -> String {
    let one = |name: &NameUse| match (name.optional, name.optional_path) {
        (true, true) => name.path.join(".") + "?",
        (true, false) => format!("{}?.{}", name.path[0], name.path[1..].join(".")),
        _ => name.path.join("."),
    };
    names.iter().map(one).collect::<Vec<_>>().join(" ")
}

#[test]
fn in_expressions() {
    for (text, expected) in [
        ("a", "a"),
        ("a.b.c == d[0].e", "a.b.c d.0.e"),
        ("hostvars['etcd-1'].r.stdout", "hostvars.etcd-1.r.stdout"),
        ("hostvars[inventory_hostname].r", "inventory_hostname hostvars.*.r"),
        ("a | default(b)", "a? b"),
        ("a.b | d('x') | upper", "a.b?"),
        ("a | upper | default('x')", "a"),
        ("a.b is defined", "a.b?"),
        ("a is not defined", "a?"),
        ("a is defined and a.b", "a? a?.b"),
        ("a.b is defined and a.b > 1", "a.b? a.b?"),
        ("a.b is defined and a.c", "a.b? a.c"),
        ("a.b is defined and a", "a.b? a?"),
        ("a is undefined or a.b", "a? a?.b"),
        ("not (a is defined) or a.b", "a? a?.b"),
        ("a is defined or a.b", "a? a.b"),
        ("a.b if a is defined else c", "a? a?.b c"),
        ("c if a is undefined else a.b", "a? c a?.b"),
        ("(a is defined and b is defined) and a.x + b.y", "a? b? a?.x b?.y"),
        ("r.stdout.split(',')", "r.stdout"),
        ("range(n)", "n"),
        ("omit", ""),
        ("r is failed", "r"),
        ("x in [a, {'k': b}]", "x a b"),
        ("x | combine({'a': y}, recursive=z)", "x y z"),
        ("names | map('extract', hostvars, 'address')", "names hostvars"),
        ("a[b:c]", "a b c"),
        ("(a | from_json).b", "a"),
        ("f(x)", "x"),
        ("{{ a.b }}", "a.b"),
    ] {
        assert_eq!(shown(&names_in_expression(text).unwrap()), expected, "{text}");
    }
}

#[test]
fn in_templates() {
    for (text, expected) in [
        ("plain", ""),
        ("{{ a }} and {{ b.c }}", "a b.c"),
        ("{% for x in xs if x.y %}{{ x }}{{ loop.index }}{{ z }}{% else %}{{ x }}{% endfor %}{{ x }}", "xs z x x"),
        ("{% for k, v in m.items() %}{{ k }}{{ v.w }}{% endfor %}", "m"),
        ("{{ x }}{% set x = x | default(1) %}{{ x }}", "x x?"),
        ("{% set ns = namespace(n=0) %}{% set ns.n = ns.n + a %}{{ ns.n }}", "a"),
        ("{% with a = b %}{{ a }}{% endwith %}{{ a }}", "b a"),
        ("{% macro m(x, y=d) %}{{ x ~ y ~ z }}{% endmacro %}{{ m(1) }}", "d z"),
        ("{% if a is defined %}{{ a.b }}{% else %}{{ a }}{% endif %}{{ a }}", "a? a?.b a a"),
        ("{% if a is undefined %}{% elif b %}{{ a }}{% endif %}", "a? b a?"),
        ("{% set t %}{{ a }}{% endset %}{{ t }}", "a"),
        ("{% import 'x' as x %}{% from 'y' import z as w %}{{ x.f() }}{{ w() }}{{ z }}", "z"),
        ("{% filter upper %}{{ a }}{% endfilter %}", "a"),
        ("{% call(x) f(a) %}{{ x }}{% endcall %}", "a"),
        ("{# {{ a }} #}{% raw %}{{ b }}{% endraw %}", ""),
    ] {
        assert_eq!(shown(&names_in_template(text).unwrap()), expected, "{text}");
    }
}

#[test]
fn offsets_point_at_the_path() {
    for text in ["x{{ a.b['c'] }}", "ä{{ 'ü' ~ (a.b) }}", "{% if q.w is defined %}{% endif %}"] {
        let names = names_in_template(text).unwrap();
        assert!(!names.is_empty(), "{text}");
        let written = &text[names[0].offset..names[0].offset + names[0].len];
        assert!(["a.b['c']", "a.b", "q.w"].contains(&written), "{written}");
    }
    assert!(is_in_braces("{{ a }}") && !is_in_braces("a == '{{'") && !is_in_braces("{{ a }} and {{ b }}"));
    let names = names_in_expression("  {{ abc }}").unwrap();
    assert_eq!((names[0].offset, names[0].len), (5, 3));
}

#[test]
fn a_condition_guards_what_it_guards() {
    let guards = guards_in_expression("a is defined and not (b.c is undefined) and d").unwrap();
    assert_eq!(guards, [vec!["a".to_owned()], vec!["b".into(), "c".into()]]);
    let names = names_in_template("{{ a.x }}{{ b.c }}{{ d }}").unwrap();
    let guarded: Vec<_> = names.into_iter().map(|name| name.guarded_by(&guards)).collect();
    assert_eq!(shown(&guarded), "a?.x b.c? d");
}

#[test]
fn syntax_errors_have_offsets() {
    let error = names_in_template("ok {{ a b }}").unwrap_err();
    assert_eq!((error.offset, error.message.is_empty()), (8, false));
    let error = names_in_expression("a ==").unwrap_err();
    assert!(error.message.contains("unexpected"), "{}", error.message);
}

#[test]
fn unknown_calls_are_found_with_near_names() {
    let text = "{{ a | uper }}{{ a is mach('x') }}{{ rnge(3) }}{{ a.splt() }}{{ a | map('uper') }}{{ a | selectattr('x', 'mach') }}\
                {{ lookup('env', 'HOME') }}{{ now() }}{{ a | random }}{{ a | __lookup('x') }}\
                {{ a | ansible.builtin.to_json }}{% macro m() %}{% endmacro %}{{ m() }}{{ a | upper }}{{ a.split() }}";
    let unknown = unknown_callables(&Analysis::of_template(text).unwrap());
    let shown: Vec<_> = unknown
        .iter()
        .map(|unknown| {
            let written = &text[unknown.call.offset..unknown.call.offset + unknown.call.len];
            format!("{written}: {} ({})", unknown.message, unknown.help.as_deref().unwrap_or("-"))
        })
        .collect();
    insta::assert_snapshot!(shown.join("\n"));
}

#[test]
fn files_are_followed_with_what_they_can_see() {
    let files = |name: &str| match name {
        "part.j2" => Some("\n{{ m }} {{ other }}".to_owned()),
        "macros.j2" => Some("{% macro f(x) %}{{ x }}{{ m }}{% endmacro %}".to_owned()),
        _ => None,
    };
    let text = "{% import 'macros.j2' as t %}{% for m in ms %}{% include 'part.j2' %}{% endfor %}";
    let names = names_in_file("main.j2", text, &files).unwrap();
    let shown: Vec<_> = names.iter().map(|n| format!("{}:{} {}", n.template, n.line, n.name.root())).collect();
    assert_eq!(shown, ["macros.j2:1 m", "main.j2:1 ms", "part.j2:2 other"]);
}
