//! Templates that mean harm, or nothing at all: an error each, never a panic, a hang or a full stack.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::template::{names_in_expression, names_in_template};

/// As small a stack as the threads of the engine have.
fn on_a_small_stack(test: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().stack_size(2 << 20).spawn(test).unwrap().join().unwrap();
}

#[test]
fn deep_expressions_are_refused() {
    on_a_small_stack(|| {
        let mut bench = Bench::new();
        let scope = bench.scope("{a: 1}");
        for deep in [
            "1+".repeat(100_000) + "1",
            "not ".repeat(100_000) + "a",
            "-".repeat(100_000) + "1",
            "(".repeat(100_000),
            "[".repeat(100_000),
            "{'a':".repeat(50_000),
            format!("a{}", ".b".repeat(100_000)),
            format!("a{}", "|string".repeat(100_000)),
            format!("a{}", "()".repeat(100_000)),
            "a if a else ".repeat(50_000) + "a",
            format!("a{}", " is true".repeat(50_000)),
            format!("a[{}", "a[".repeat(50_000)),
        ] {
            assert!(names_in_expression(&deep).is_err());
            assert!(bench.eval(&deep, &scope).is_err());
            let text = format!("x{{{{ {deep} }}}}");
            let span = bench.span(&text);
            assert!(bench.engine.render_str(&text, span, &scope).is_err());
        }
    });
}

#[test]
fn the_deepest_allowed_is_fine() {
    on_a_small_stack(|| {
        let mut bench = Bench::new();
        let scope = bench.scope("{a: 1}");
        assert_eq!(bench.eval(&("1+".repeat(390) + "1"), &scope), Ok(json!(391)));
        assert_eq!(bench.eval(&format!("{}1{}", "[".repeat(70), "]".repeat(70)), &scope).map(|_| ()), Ok(()));
        assert_eq!(bench.eval(&format!("a{}", "|string".repeat(390)), &scope), Ok(json!("1")));
        let elifs = "{% elif a == 2 %}".repeat(190);
        assert_eq!(
            bench.render(&format!("'{{% if a == 3 %}}{elifs}{{% else %}}x{{% endif %}}'"), &scope),
            Ok(json!("x"))
        );
        let long = vec!["'x'"; 20_000].join(", ");
        assert_eq!(bench.eval(&format!("[{long}] | length"), &scope), Ok(json!(20_000)));
    });
}

#[test]
fn deep_blocks_and_recursion_are_refused() {
    on_a_small_stack(|| {
        let mut bench = Bench::new();
        let scope = bench.scope("{a: 1}");
        for text in [
            "{% if a %}".repeat(10_000),
            format!("{{% if a %}}{}{{% endif %}}", "{% elif a %}".repeat(10_000)),
            "{% for x in [1] %}".repeat(149) + &"{% endfor %}".repeat(149) + "{{ nobody }}",
            "{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}".to_owned(),
            "{% for x in [[[]]] recursive %}{{ loop([[1]]) }}{% endfor %}".to_owned(),
        ] {
            let span = bench.span(&text);
            assert!(bench.engine.render_str(&text, span, &scope).is_err());
            let _ = names_in_template(&text);
        }
        let files = |name: &str| Some(format!("{{% include '{name}x' %}}"));
        assert!(bench.engine.render_file("x", "{% include 'y' %}", &files, &scope).is_err());
        let circle = |name: &str| Some(if name == "a" { "{% include 'b' %}" } else { "{% include 'a' %}" }.to_owned());
        assert!(bench.engine.render_file("a", "{% include 'b' %}", &circle, &scope).is_err());
    });
}

#[test]
fn endless_loops_end() {
    let mut bench = Bench::new();
    let scope = bench.scope("{}");
    let text = "{% for a in range(90000) %}{% for b in range(90000) %}{% for c in range(90000) %}{% endfor %}{% endfor %}{% endfor %}";
    let span = bench.span(text);
    let problem = bench.engine.render_str(text, span, &scope).unwrap_err();
    assert_eq!(problem.message, "this template never seems to end");
    assert!(bench.eval("range(10000000)", &scope).is_err());
}

#[test]
fn variables_that_lead_nowhere_end() {
    on_a_small_stack(|| {
        let mut bench = Bench::new();
        let chain: String = (0..200).map(|n| format!("v{n}: 'x{{{{ v{} }}}}'\n", n + 1)).collect();
        let scope =
            bench.scope(&(chain + "v200: end\nself: '{{ self_ }}'\nself_: '{{ self }}'\nloop_: ['{{ loop_ }}']\n"));
        let problem = bench.eval("v0", &scope).unwrap_err();
        assert!(problem.message.contains("levels deep"), "{}", problem.message);
        assert_eq!(bench.eval("v170", &scope), Ok(json!("x".repeat(30) + "end")));
        let cycle = bench.scope("a: '{{ b }}'\nb: 'x{{ c.d }}'\nc: {d: '{{ a }}'}\n");
        assert_eq!(bench.eval("a", &cycle).unwrap_err().message, "`a` is defined by itself: a -> b -> c.d -> a");
        assert_eq!(bench.eval("c", &cycle).unwrap_err().message, "`c.d` is defined by itself: c.d -> a -> b -> c.d");
        assert!(bench.eval("loop_", &scope).unwrap_err().message.contains("contains itself"));
        assert!(bench.render("'{{ loop_ }} {{ loop_ | to_json }}'", &scope).is_err());
    });
}

#[test]
fn collections_that_contain_themselves_end() {
    on_a_small_stack(|| {
        let mut bench = Bench::new();
        let scope = bench.scope(
            "one: ['{{ one }}']\ntwo: ['{{ three }}']\nthree: {x: '{{ two }}'}\nbuilt: ['{{ [built] }}']\n\
             many: ['{{ many }}', '{{ many }}']\nown: {a: 1, b: '{{ own.a }}', c: '{{ [own.b, own.a] }}'}\n",
        );
        for name in ["one", "two", "three", "built", "many"] {
            for expression in [
                "NAME",
                "NAME ~ ''",
                "NAME | to_json",
                "NAME == [NAME]",
                "[NAME, NAME] | unique",
                "NAME | flatten",
                "NAME in NAME",
            ] {
                let _ = bench.eval(&expression.replace("NAME", name), &scope);
            }
            assert!(bench.eval(name, &scope).is_err(), "{name}");
            assert!(bench.render(&format!("'text {{{{ {name} }}}}'"), &scope).is_err(), "{name}");
        }
        assert_eq!(bench.eval("own", &scope), Ok(json!({"a": 1, "b": 1, "c": [1, 1]})));
    });
}

#[test]
fn macros_inside_deep_variables_stay_within_the_stack() {
    on_a_small_stack(|| {
        let mut bench = Bench::new();
        let body = "{% macro m(n) %}{% if n > 0 %}{{ m(n - 1) }}{% else %}NEXT{% endif %}{% endmacro %}{{ m(30) }}";
        let vars: String = (0..31)
            .map(|n| format!("v{n}: \"{}\"\n", body.replace("NEXT", &format!("{{{{ v{} }}}}", n + 1))))
            .collect();
        let scope = bench.scope(&(vars + "v31: end\n"));
        assert_eq!(bench.eval("v0", &scope), Ok(json!("end")));
    });
}

fn template_text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("{{ "),
        Just(" }}"),
        Just("{% "),
        Just(" %}"),
        Just("{# "),
        Just(" #}"),
        Just("{{-"),
        Just("-}}"),
        Just("if "),
        Just("else "),
        Just("endif"),
        Just("for "),
        Just(" in "),
        Just("endfor"),
        Just("set "),
        Just("macro "),
        Just("a"),
        Just("nobody"),
        Just(".b"),
        Just("[0]"),
        Just("["),
        Just("]"),
        Just("("),
        Just(")"),
        Just("|"),
        Just("default("),
        Just("is defined"),
        Just(" and "),
        Just(" or "),
        Just("not "),
        Just("'"),
        Just("\""),
        Just("ü"),
        Just(" + "),
        Just("~"),
        Just(", "),
        Just("1"),
        Just("map"),
        Just("upper"),
        Just("to_json"),
        Just("include "),
        Just("=="),
        Just("\n"),
        Just("{"),
        Just("}"),
        Just("%"),
        Just("\\"),
        Just("raw"),
        Just("endraw"),
        Just(": "),
    ];
    proptest::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn nothing_panics(text in template_text(), noise in "\\PC{0,40}") {
        let mut bench = Bench::new();
        let scope = bench.scope("{a: {b: [1, 'x']}, map: {}}");
        for text in [text, noise] {
            let span = bench.span(&text);
            let names = names_in_template(&text);
            for name in names.into_iter().flatten() {
                prop_assert!(text.get(name.offset..name.offset + name.len).is_some(), "{text:?} {name:?}");
            }
            let _ = names_in_expression(&text);
            let once = bench.engine.render_str(&text, span, &scope);
            prop_assert_eq!(&once, &Engine::new().render_str(&text, span, &scope));
            let _ = bench.engine.eval(&text, span, &scope);
            let _ = bench.engine.eval_bool(&text, span, &scope);
            let _ = bench.engine.render_file("f", &text, &|_| Some(text.clone()), &scope);
        }
    }

    #[test]
    fn filters_never_panic(value in 0usize..12, filter in 0usize..200, argument in 0usize..12) {
        const VALUES: [&str; 12] = [
            "a", "a.b", "map", "1", "-9223372036854775808", "1.5", "''", "'10.0.0.0/8'", "'::/0'", "none", "true", "'x y'",
        ];
        let mut bench = Bench::new();
        let scope = bench.scope("{a: {b: [1, 'x']}, map: {}}");
        let filters = crate::template::callables::known(crate::template::CallKind::Filter);
        let filter = filters[filter % filters.len()];
        for call in [
            format!("{} | {filter}", VALUES[value]),
            format!("{} | {filter}({})", VALUES[value], VALUES[argument]),
            format!("{} | {filter}({}, {})", VALUES[value], VALUES[argument], VALUES[value]),
        ] {
            let _ = bench.eval(&call, &scope);
        }
    }
}
