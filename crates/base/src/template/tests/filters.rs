//! Filters, tests, functions and methods, group by group.

use serde_json::{Value, json};

use super::*;
use crate::template::{CallKind, callables::known};

const VARS: &str = r#"
map: {b: 2, a: {x: 1, l: [1]}}
list: [3, 1, 2, 3]
hosts: [{name: a, up: true, ports: [1, 2]}, {name: b, up: false, ports: []}]
text: "key = value"
nothing: ~
net: 10.1.0.0/16
host: 10.1.2.3/24
ok: {changed: true, failed: false, rc: 0}
bad: {failed: true, msg: no}
left_out: {skipped: true, changed: false}
"#;

fn check(cases: &[(&str, Value)]) {
    let mut bench = Bench::new();
    let scope = bench.scope(VARS);
    for (expression, expected) in cases {
        let got = bench.eval(expression, &scope);
        assert_eq!(got.as_ref().map_err(|problem| bench.show(problem)), Ok(expected), "{expression}");
    }
}

/// Each must fail, with a message that has the given words.
fn refused(cases: &[(&str, &str)]) {
    let mut bench = Bench::new();
    let scope = bench.scope(VARS);
    for (expression, words) in cases {
        let problem = bench.eval(expression, &scope).expect_err(expression);
        assert!(problem.message.contains(words), "{expression}: {}", problem.message);
    }
}

#[test]
fn data() {
    check(&[
        ("map | to_json", json!(r#"{"b": 2, "a": {"x": 1, "l": [1]}}"#)),
        ("map | to_json(sort_keys=true)", json!(r#"{"a": {"l": [1], "x": 1}, "b": 2}"#)),
        ("map.a | to_nice_json", json!("{\n    \"l\": [\n        1\n    ],\n    \"x\": 1\n}")),
        ("map.a | to_nice_json(indent=1)", json!("{\n \"l\": [\n  1\n ],\n \"x\": 1\n}")),
        ("'[1, {\"a\": null}]' | from_json", json!([1, {"a": null}])),
        ("map | to_yaml | from_yaml == map", json!(true)),
        ("{'a': 1, 'b': 'yes'} | to_yaml", json!("a: 1\nb: \"yes\"\n")),
        ("'a: {b: [1, on]}' | from_yaml", json!({"a": {"b": [1, "on"]}})),
        ("'hello' | b64encode", json!("aGVsbG8=")),
        ("'aGVsbG8=' | b64decode", json!("hello")),
        ("'abc' | hash('sha256')", json!("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")),
        ("'abc' | hash", json!("a9993e364706816aba3e25717850c26c9cd0d89d")),
        ("'abc' | checksum", json!("a9993e364706816aba3e25717850c26c9cd0d89d")),
        ("'abc' | hash('sha512') | length", json!(128)),
        ("['yes', 'On', 1, true, 'no', 0] | map('bool') | list", json!([true, true, true, true, false, false])),
        ("true | ternary('a', 'b') ~ false | ternary('a', 'b')", json!("ab")),
        ("nothing | ternary(1, 2, 3)", json!(3)),
        (
            "[1, 1.5, 'x', [], {}, none, true] | map('type_debug') | join(' ')",
            json!("int float str list dict NoneType bool"),
        ),
        ("'5' | int + 1", json!(6)),
        ("'1.5' | float", json!(1.5)),
        ("'x' | int(7)", json!(7)),
        ("-3 | abs", json!(3)),
        ("2.5 | round", json!(2.0)),
        ("1536 | human_readable", json!("1.50 KB")),
        ("'2GiB' | human_to_bytes", json!(2u64 << 30)),
        ("12 | string", json!("12")),
    ]);
    refused(&[
        ("'{' | from_json", "not JSON"),
        ("'a: [' | from_yaml", "YAML"),
        ("'%%%' | b64decode", "not base64"),
        ("'x' | hash('md5')", "unknown hash"),
        ("'maybe' | bool", "neither true nor false"),
        ("nobody | ternary(1, 2)", "`nobody` is undefined"),
        ("nobody | to_json", "`nobody` is undefined"),
        ("[nobody] | to_json", "`nobody` is undefined"),
        ("nobody | mandatory('set it')", "set it"),
        ("map | to_json(idnent=2)", "idnent"),
        ("'3 furlongs' | human_to_bytes", "not a size"),
    ]);
}

#[test]
fn text() {
    check(&[
        ("'it is' | quote ~ ' ' ~ 'plain-1.2' | quote ~ ' ' ~ '' | quote", json!("'it is' plain-1.2 ''")),
        ("\"it's; rm\" | quote", json!(r"'it'\''s; rm'")),
        ("'a\nb' | comment", json!("#\n# a\n# b\n#")),
        ("'a' | comment('c') ~ 'a' | comment(decoration='; ')", json!("//\n// a\n//;\n; a\n;")),
        ("'ab' | center(6)", json!("  ab  ")),
        ("'one two three' | wordwrap(7)", json!("one two\nthree")),
        ("'/etc/etcd/etcd.conf' | basename", json!("etcd.conf")),
        ("['/etc/etcd.conf', '/etc', 'x', '/a/b/'] | map('dirname') | list", json!(["/etc", "/", "", "/a/b"])),
        (
            "['a/b.tar.gz', '.bashrc', 'x'] | map('splitext') | list",
            json!([["a/b.tar", ".gz"], [".bashrc", ""], ["x", ""]]),
        ),
        ("['/etc', 'etcd', 'x'] | path_join", json!("/etc/etcd/x")),
        ("'a' | upper ~ 'B' | lower ~ 'the end' | title ~ ' x ' | trim ~ 'abc' | capitalize", json!("AbThe EndxAbc")),
        ("'a,b' | split(',') | join('-')", json!("a-b")),
        ("'a\nb' | indent(2)", json!("a\n  b")),
        ("'a b/c' | urlencode", json!("a%20b/c")),
        ("'https://u:p@h.example:2379/v3?x=1#f' | urlsplit('port')", json!(2379)),
        ("('https://u:p@[::1]:2379/v3' | urlsplit).hostname", json!("::1")),
        ("'%s-%03d' | format('a', 7)", json!("a-007")),
        ("'a-b' | replace('-', '_')", json!("a_b")),
    ]);
    refused(&[("'x' | urlsplit('prt')", "no part"), ("'x' | comment('perl')", "unknown comment style")]);
}

#[test]
fn regular_expressions() {
    check(&[
        (r"'etcd-1' | regex_replace('^(\w+)-(\d+)$', '\\2:\\1')", json!("1:etcd")),
        (r"'etcd-1' | regex_replace('(?P<n>\d)', '<\\g<n>>')", json!("etcd-<1>")),
        (r"'a$1' | regex_replace('a', '$1')", json!("$1$1")),
        ("'aaa' | regex_replace('A', 'b', count=2, ignorecase=true)", json!("bba")),
        (r"'v3.5.26-arm' | regex_search('\d+\.\d+')", json!("3.5")),
        (r"'key = value' | regex_search('(\w+) = (\w+)', '\\2', '\\g<1>')", json!(["value", "key"])),
        ("'x' | regex_search('y')", json!(null)),
        (r"'a1b22' | regex_findall('\d+')", json!(["1", "22"])),
        (r"'a=1 b=2' | regex_findall('(\w)=(\d)')", json!([["a", "1"], ["b", "2"]])),
        ("'a\nb' | regex_findall('^.', multiline=true)", json!(["a", "b"])),
        ("'a.b*' | regex_escape", json!(r"a\.b\*")),
        ("text is match('key') and text is not match('value') and text is search('value')", json!(true)),
        ("text is regex('VALUE$', ignorecase=true)", json!(true)),
        ("['a1', 'b'] | select('match', '[a-z][0-9]') | list", json!(["a1"])),
    ]);
    refused(&[
        ("'x' | regex_replace('(', '')", "not a regular expression"),
        (r"'x' | regex_search('x', '\\3')", "no group 3"),
        ("nobody | regex_search('x')", "`nobody` is undefined"),
    ]);
}

#[test]
fn collections() {
    check(&[
        ("list | unique | sort | list", json!([1, 2, 3])),
        (
            "[list | min, list | max, list | sum, list | length, list | count, list | first, list | last]",
            json!([1, 3, 9, 4, 4, 3, 3]),
        ),
        ("[1, [2, [3, none]]] | flatten", json!([1, 2, 3])),
        ("[1, [2, [3]]] | flatten(levels=1)", json!([1, 2, [3]])),
        ("list | union([9, 1])", json!([3, 1, 2, 9])),
        ("list | intersect([3, 2])", json!([3, 2])),
        ("list | difference([3])", json!([1, 2])),
        ("[1, 2] | symmetric_difference([2, 3])", json!([1, 3])),
        ("[1, 2] | zip(['a', 'b']) | list", json!([[1, "a"], [2, "b"]])),
        ("[1, 2] | zip_longest(['a'], fillvalue='-')", json!([[1, "a"], [2, "-"]])),
        ("[1, 2] | product(['a', 'b'])", json!([[1, "a"], [1, "b"], [2, "a"], [2, "b"]])),
        ("map | dict2items | map(attribute='key') | list", json!(["b", "a"])),
        ("map | dict2items(key_name='k', value_name='v') | first", json!({"k": "b", "v": 2})),
        ("[{'key': 'a', 'value': 1}] | items2dict", json!({"a": 1})),
        ("map | combine({'b': 3, 'a': {'y': 2}})", json!({"b": 3, "a": {"y": 2}})),
        (
            "map | combine({'a': {'y': 2, 'l': [2]}}, recursive=true, list_merge='append')",
            json!({"b": 2, "a": {"x": 1, "l": [1, 2], "y": 2}}),
        ),
        ("[{'a': 1}, {'b': 2}] | combine", json!({"a": 1, "b": 2})),
        ("hosts | selectattr('up') | map(attribute='name') | list", json!(["a"])),
        ("hosts | rejectattr('name', 'equalto', 'a') | map(attribute='name') | join", json!("b")),
        ("hosts | selectattr('name', 'in', ['b', 'c']) | map(attribute='name') | first", json!("b")),
        ("hosts | subelements('ports') | map('last') | list", json!([1, 2])),
        ("hosts | groupby('up') | map('first') | list", json!([false, true])),
        ("['b', 'a'] | map('extract', map) | first", json!(2)),
        ("['a'] | map('extract', map, ['l', 0]) | list", json!([1])),
        ("list | select('gt', 2) | list", json!([3, 3])),
        ("list | reject('odd') | list", json!([2])),
        ("list[1:3]", json!([1, 2])),
        ("hosts | map(attribute='name') | join(',')", json!("a,b")),
        ("hosts | join('+', attribute='name')", json!("a+b")),
        ("map.items() | map('first') | list", json!(["b", "a"])),
        ("list is contains(3) and 3 in list and list is superset([1]) and [1] is subset(list)", json!(true)),
        ("[1, 0] is any and [1, 0] is not all", json!(true)),
        ("{'a': [1]} == {'a': [1]} and map.a.l == [1]", json!(true)),
        ("dict(a=1) | combine(dict(b=2)) | length", json!(2)),
        ("range(3) | list", json!([0, 1, 2])),
    ]);
    refused(&[
        ("1 | flatten", "expected a list"),
        ("[1] | combine", "expected a mapping"),
        ("[{'k': 1}] | items2dict", "no `key`"),
        ("range(1000) | list | product(range(1000) | list)", "a product of more"),
        ("['z'] | map('extract', map) | list", "undefined"),
    ]);
}

#[test]
fn addresses() {
    check(&[
        (
            "[host | ipaddr('address'), host | ipaddr('network'), host | ipaddr('prefix')]",
            json!(["10.1.2.3", "10.1.2.0", 24]),
        ),
        (
            "[host | ipaddr('netmask'), host | ipaddr('broadcast'), host | ipaddr('subnet')]",
            json!(["255.255.255.0", "10.1.2.255", "10.1.2.0/24"]),
        ),
        (
            "[host | ipaddr('host'), host | ipaddr('net'), net | ipaddr('net')]",
            json!(["10.1.2.3/24", false, "10.1.0.0/16"]),
        ),
        ("[net | ipaddr(1), net | ipaddr(-1), net | ipaddr('size')]", json!(["10.1.0.1/16", "10.1.255.255/16", 65536])),
        ("[net | ipaddr('first_usable'), net | ipaddr('last_usable')]", json!(["10.1.0.1", "10.1.255.254"])),
        ("['10.1.2.3', 'x', 5, 'fe80::1'] | ipaddr", json!(["10.1.2.3", "fe80::1"])),
        ("['10.1.2.3', '192.0.2.1'] | ipaddr('10.0.0.0/8')", json!(["10.1.2.3"])),
        ("'nonsense' | ipaddr", json!(false)),
        ("'10.0.0.5/255.255.255.0' | ipaddr('prefix')", json!(24)),
        ("'10.0.0.250' | ipmath(10)", json!("10.0.1.4")),
        ("'10.0.1.4' | ipmath(-10)", json!("10.0.0.250")),
        ("'2001:db8::ffff' | ipmath(1)", json!("2001:db8::1:0")),
        ("net | ipsubnet(24, 3)", json!("10.1.3.0/24")),
        ("net | ipsubnet(24, -1)", json!("10.1.255.0/24")),
        ("net | ipsubnet(24)", json!(256)),
        ("host | ipsubnet(16)", json!("10.1.0.0/16")),
        ("'10.0.0.0/8' | nthhost(305)", json!("10.0.1.49")),
        ("net | network_in_network('10.1.9.0/24')", json!(true)),
        ("net | network_in_usable('10.1.0.0')", json!(false)),
        ("host is in_network('10.0.0.0/8') and host is ip and host is ipv4 and host is not ipv6", json!(true)),
        ("['10.0.0.1', 'fe80::1'] | ipv6", json!(["fe80::1"])),
        ("['10.0.0.1', 'fe80::1'] | ipwrap", json!(["10.0.0.1", "[fe80::1]"])),
        ("'fe80::1/64' | ipv6('address')", json!("fe80::1")),
        ("'10.1.2.3' | ipaddr('revdns')", json!("3.2.1.10.in-addr.arpa.")),
    ]);
    refused(&[
        ("'x' | ipaddr('address')", "not an IP address"),
        ("host | ipaddr('adress')", "does not know the query"),
        ("'255.255.255.255' | ipmath(1)", "is not an address"),
        ("'10.0.0.0/30' | nthhost(9)", "no address 9"),
        ("net | ipsubnet(24, 256)", "no /24 number 256"),
        ("net | ipsubnet(40)", "not a prefix length"),
        ("'::/0' | ipsubnet(128, 9)  ~ nobody", "`nobody` is undefined"),
    ]);
}

#[test]
fn versions() {
    check(&[
        ("'3.5.26' is version('3.5.9', '>')", json!(true)),
        ("'v3.5' is version('3.5.0')", json!(true)),
        ("'3.6.0-rc.1' is version('3.6.0', '<') and '3.6.0-rc.10' is version('3.6.0-rc.9', 'gt')", json!(true)),
        ("'3.5.26+build' is version('3.5.26', 'eq') and 3.5 is version_compare('3.4', operator='ge')", json!(true)),
        ("'1.2' is version('1.10', '<', version_type='semver')", json!(true)),
    ]);
    refused(&[("'new' is version('1')", "not a version"), ("'1' is version('2', '~')", "not a comparison")]);
}

#[test]
fn results_and_kinds() {
    check(&[
        ("ok is succeeded and ok is success and ok is changed and ok is not failed", json!(true)),
        ("bad is failed and bad is failure and bad is not succeeded and bad is not changed", json!(true)),
        ("left_out is skipped and left_out is skip", json!(true)),
        ("nothing is none and text is string and list is sequence and map is mapping and 1 is number", json!(true)),
        ("list is iterable and 1 is integer and 1.5 is float and true is boolean and nobody is undefined", json!(true)),
        ("'x' is truthy and '' is falsy and 'no' is falsy(convert_bool=true) and true is true", json!(true)),
        ("2 is even and 3 is divisibleby(3) and 'a' is in ['a']", json!(true)),
    ]);
    refused(&[("text is failed", "needs a registered result"), ("nobody is failed", "`nobody` is undefined")]);
}

#[test]
fn methods() {
    check(&[
        ("text.split(' = ')", json!(["key", "value"])),
        ("'a b  c'.split() + 'a:b:c'.rsplit(':', 1)", json!(["a", "b", "c", "a:b", "c"])),
        ("' x '.strip() ~ 'xxa'.lstrip('x') ~ text.upper()", json!("xaKEY = VALUE")),
        ("text.startswith('key') and text.endswith(('x', 'value')) and '12'.isdigit()", json!(true)),
        ("'a-b'.replace('-', '+') ~ '{}/{}'.format(1, 'x') ~ ','.join(['a', 'b'])", json!("a+b1/xa,b")),
        ("'abc'.find('c') + 'abc'.find('z') + 'aa'.count('a')", json!(3)),
        ("map.keys() + [map.get('b'), map.get('zz', 9), map.get('zz')]", json!(["b", "a", 2, 9, null])),
        ("list.index(1) + list.count(3)", json!(3)),
        ("'7'.zfill(3) ~ 'a\nb'.splitlines() | length", json!("0072")),
        ("'etcd-1'.removeprefix('etcd-')", json!("1")),
    ]);
    refused(&[("text.splt()", "no method"), ("nobody.split()", "`nobody` is undefined"), ("'a'.split('')", "empty")]);
}

#[test]
fn every_known_name_exists() {
    let mut bench = Bench::new();
    let scope = bench.scope("{}");
    for name in known(CallKind::Filter) {
        assert_eq!(bench.holds(&format!("'{name}' is filter"), &scope), Ok(true), "{name}");
    }
    for name in known(CallKind::Test) {
        assert_eq!(bench.holds(&format!("'{name}' is test"), &scope), Ok(true), "{name}");
    }
    for name in known(CallKind::Function) {
        let problem = bench.eval(name, &scope).unwrap_err();
        assert!(problem.message.contains("a function is not a value"), "{name}: {}", problem.message);
    }
}

#[test]
fn every_known_name_is_documented() {
    let page = include_str!("../../../../../docs/templates.md");
    // Said there as "their other spellings".
    let spellings = ["==", "!=", "<", "<=", ">", ">=", "equalto", "lessthan", "greaterthan", "int", "escaped"];
    let names = known(CallKind::Filter).iter().chain(known(CallKind::Test)).chain(known(CallKind::Function));
    for name in names.filter(|name| !spellings.contains(name)) {
        let mentions = [format!("`{name}`"), format!("`{name}(")];
        assert!(mentions.iter().any(|mention| page.contains(mention)), "{name}");
    }
}
