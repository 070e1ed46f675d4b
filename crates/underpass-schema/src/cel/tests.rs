//! Expressions and what they give.

use super::*;

fn run(source: &str) -> Result<Value, String> {
    let program = Program::compile(source, &[("d", Type::Dyn)], &Type::Dyn)?;
    program.run(&[("d", Value::Null)], &mut Budget::default()).map_err(|error| error.to_string())
}

/// Every expression holds. `d` is a value of which nothing is known before it runs.
const TRUE: &[&str] = &[
    // literals, operators, precedence
    "1 + 2 * 3 == 7",
    "(1 + 2) * 3 == 9",
    "-9223372036854775808 < 0",
    "0x1F == 31 && 5u == 5u && 1e3 == 1000.0 && .5 == 0.5",
    "7 / 2 == 3 && 7 % 2 == 1 && -7 / 2 == -3 && 7u / 2u == 3u",
    "1.5 + 1.5 == 3.0 && 3.0 / 2.0 == 1.5",
    "'a' + \"b\" == 'ab' && b'a' + b'b' == b'ab'",
    "'a\\tb\\u00e9\\x41\\101' == \"a\tbéAA\"",
    "r'\\d' == '\\\\d' && '''a\nb''' == 'a\\nb'",
    "[1, 2] + [3] == [1, 2, 3]",
    "1 < 2 && 2 <= 2 && 3 > 2 && 3 >= 3 && 1 != 2",
    "1 < 2u && 1 < 1.5 && 2u > 1.5",
    "!false && (true ? 1 : 2) == 1 && (false ? 1 : true ? 2 : 3) == 2",
    "1 in [1, 2] && !(3 in [1, 2]) && 'a' in {'a': 1}",
    "{'a': 1, 'b': [1]}.b[0] == 1 && {1: 'x'}[1] == 'x'",
    "{'a': 1} == {'a': 1} && {'a': 1} != {'a': 2}",
    "d == null && null == null",
    "true || 1 / 0 == 1",
    "1 / 0 == 1 || true",
    "!(1 / 0 == 1 && false)",
    "1 == 1 // a remark",
    // conversions and types
    "int('42') == 42 && int(4.9) == 4 && int(5u) == 5 && int('-1') == -1",
    "uint(3) == 3u && double('1.5') == 1.5 && double(2) == 2.0",
    "string(12) == '12' && string(true) == 'true' && string(1.5) == '1.5' && string(b'hi') == 'hi'",
    "bytes('hi') == b'hi' && bool('true') && dyn(1) == 1",
    "type(1) == int && type('') == string && type([]) == list && type({}) == map && type(1.0) != type(1)",
    "base64.encode(b'hi') == 'aGk=' && base64.decode('aGk=') == b'hi'",
    // sizes
    "size('héllo') == 5 && 'abc'.size() == 3 && size([1, 2]) == 2 && {'a': 1}.size() == 1 && size(b'ab') == 2",
    // strings
    "'hello'.startsWith('he') && 'hello'.endsWith('lo') && 'hello'.contains('ell')",
    "'héllo'.charAt(1) == 'é' && 'abc'.charAt(3) == ''",
    "'hello mellow'.indexOf('ello') == 1 && 'hello mellow'.indexOf('ello', 2) == 7 && 'a'.indexOf('z') == -1",
    "'hello mellow'.lastIndexOf('ello') == 7 && 'hello mellow'.lastIndexOf('ello', 6) == 1",
    "'TacoCat'.lowerAscii() == 'tacocat' && 'TacoCat'.upperAscii() == 'TACOCAT'",
    "'  a '.trim() == 'a' && 'gums'.reverse() == 'smug'",
    "'hello hello'.replace('he', 'we') == 'wello wello' && 'hello hello'.replace('he', 'we', 1) == 'wello hello'",
    "'a,b,c'.split(',') == ['a', 'b', 'c'] && 'a,b,c'.split(',', 2) == ['a', 'b,c'] && 'abc'.split('') == ['a', 'b', 'c']",
    "'a,b'.split(',', 0) == []",
    "'tacocat'.substring(4) == 'cat' && 'tacocat'.substring(0, 4) == 'taco' && 'tacocat'.substring(4, 4) == ''",
    "['a', 'b'].join() == 'ab' && ['a', 'b'].join('-') == 'a-b' && [].join('-') == ''",
    "strings.quote('a\"b\\n') == '\"a\\\\\"b\\\\n\"'",
    "'%s has %d, %.2f%%'.format(['x', 3, 1.5]) == 'x has 3, 1.50%'",
    "'%x %X %o %b %b'.format([255, 'hi', 8, 5, true]) == 'ff 6869 10 101 1'",
    "'%e'.format([1052.032911275]) == '1.052033e+03'",
    "'%s'.format([[1, 'a', {'k': null}]]) == '[1, a, {k: null}]'",
    // regular expressions
    "'abc123'.matches('^[a-z]+[0-9]+$') && !'abc'.matches('[0-9]') && matches('ab', 'b')",
    "'abc 123'.find('[0-9]+') == '123' && 'abc'.find('[0-9]+') == ''",
    "'1 a 2 b 3'.findAll('[0-9]') == ['1', '2', '3'] && '1 a 2 b 3'.findAll('[0-9]', 2) == ['1', '2']",
    // lists
    "[1, 2, 3].isSorted() && !['b', 'a'].isSorted() && [].isSorted()",
    "[1, 2, 3].sum() == 6 && [1.5, 1.5].sum() == 3.0 && [].sum() == 0 && [duration('1s'), duration('1m')].sum() == duration('61s')",
    "[3, 1, 2].min() == 1 && ['a', 'c', 'b'].max() == 'c'",
    "[1, 2, 1].indexOf(1) == 0 && [1, 2, 1].lastIndexOf(1) == 2 && [1].indexOf(9) == -1",
    "[1, 2, 3, 4].slice(1, 3) == [2, 3]",
    "[[1], [2, 3]].flatten() == [1, 2, 3] && [1, [2, [3, [4]]]].flatten(2) == [1, 2, 3, [4]]",
    "[1, 2, 2, 1].distinct() == [1, 2] && [3, 1, 2].sort() == [1, 2, 3] && [1, 2].reverse() == [2, 1]",
    "[1, 2].first().value() == 1 && [1, 2].last().value() == 2",
    "sets.contains([1, 2, 3], [2, 1]) && sets.equivalent([1, 1], [1]) && sets.intersects([1], [2, 1])",
    // macros
    "[1, 2].all(x, x > 0) && ![1, -2].all(x, x > 0) && [].all(x, false)",
    "[1, 2].exists(x, x == 2) && [1, 2, 2].exists_one(x, x == 1) && ![2, 2].existsOne(x, x == 2)",
    "[1, 2, 3].filter(x, x > 1) == [2, 3] && [1, 2].map(x, x * 2) == [2, 4] && [1, 2, 3].map(x, x > 1, x * x) == [4, 9]",
    "{'a': 1, 'b': 2}.all(k, k in ['a', 'b']) && {'a': 1}.exists(k, k == 'a') && {'b': 1, 'a': 2}.map(k, k) == ['a', 'b']",
    "[0, 1].all(x, 1 / x == 1) || [1, 0].exists(x, 1 / x == 1)",
    "[10, 20].all(i, v, v == (i + 1) * 10) && {'a': 1}.exists(k, v, k == 'a' && v == 1) && [1, 1].existsOne(i, v, i == 1)",
    "[1, 2].transformList(i, v, i + v) == [1, 3] && [1, 2].transformList(i, v, i > 0, v) == [2]",
    "{'a': 1, 'b': 2}.transformMap(k, v, v > 1, v * 10) == {'b': 20}",
    "has({'a': 1}.a) && !has({'a': 1}.b) && has({'a': null}.a)",
    "cel.bind(x, 2 + 3, x * x == 25)",
    // optional values
    "{'a': 1}.?a.orValue(2) == 1 && {'a': 1}.?b.orValue(2) == 2 && !{'a': 1}.?b.hasValue()",
    "{'a': {'b': 1}}.?a.?b.value() == 1 && {'a': {'b': 1}}.?x.b.orValue(7) == 7",
    "[1][?0].hasValue() && ![1][?5].hasValue() && {'a': 1}[?'a'].value() == 1",
    "optional.of(1).or(optional.of(2)).value() == 1 && optional.none().or(optional.of(2)).value() == 2",
    "!optional.ofNonZeroValue('').hasValue() && optional.ofNonZeroValue('x').hasValue()",
    "optional.of(2).optMap(x, x * 2).value() == 4 && !optional.none().optMap(x, 1).hasValue()",
    "optional.of(2).optFlatMap(x, optional.of(x + 1)).value() == 3",
    "[?optional.of(1), ?optional.none(), 2] == [1, 2] && {?'a': optional.none()} == {}",
    "optional.none() == optional.none() && optional.of(1) == optional.of(1)",
    // times
    "timestamp('2024-02-29T12:30:45.5Z').getFullYear() == 2024 && timestamp('2024-02-29T12:30:45Z').getMonth() == 1",
    "timestamp('2024-02-29T12:30:45Z').getDate() == 29 && timestamp('2024-02-29T12:30:45Z').getDayOfMonth() == 28",
    "timestamp('2024-02-29T12:30:45Z').getDayOfWeek() == 4 && timestamp('2024-02-29T12:30:45Z').getDayOfYear() == 59",
    "timestamp('2024-02-29T12:30:45Z').getHours('+02:00') == 14 && timestamp('2024-02-29T12:30:45Z').getMinutes() == 30",
    "timestamp('2024-01-01T00:00:00Z') + duration('24h') == timestamp('2024-01-02T00:00:00Z')",
    "timestamp('2024-01-02T00:00:00Z') - timestamp('2024-01-01T00:00:00Z') == duration('24h')",
    "timestamp('2024-01-01T00:00:00Z') < timestamp('2024-01-01T00:00:01Z') && duration('1m') > duration('59s')",
    "duration('1h30m').getMinutes() == 90 && duration('1.5s').getMilliseconds() == 1500 && duration('-1s').getSeconds() == -1",
    "string(duration('90s')) == '90s' && string(timestamp('2024-01-01T00:00:00Z')) == '2024-01-01T00:00:00Z'",
    "int(timestamp('1970-01-01T00:00:10Z')) == 10 && timestamp(10) == timestamp('1970-01-01T00:00:10Z')",
    // addresses
    "isIP('10.0.0.1') && isIP('::1') && !isIP('10.0.0.256') && !isIP('::ffff:1.2.3.4') && !isIP('x')",
    "ip('10.0.0.1').family() == 4 && ip('::1').family() == 6 && string(ip('2001:DB8::1')) == '2001:db8::1'",
    "ip('127.0.0.1').isLoopback() && ip('::').isUnspecified() && ip('224.0.0.1').isLinkLocalMulticast()",
    "ip('169.254.1.1').isLinkLocalUnicast() && ip('10.0.0.1').isGlobalUnicast() && !ip('255.255.255.255').isGlobalUnicast()",
    "ip.isCanonical('2001:db8::1') && !ip.isCanonical('2001:DB8::1') && ip('::1') == ip('0:0:0:0:0:0:0:1')",
    "isCIDR('10.0.0.0/8') && !isCIDR('10.0.0.0') && !isCIDR('10.0.0.0/40')",
    "cidr('10.0.0.0/8').containsIP('10.1.2.3') && cidr('10.0.0.0/8').containsIP(ip('10.1.2.3')) && !cidr('10.0.0.0/8').containsIP('11.0.0.1')",
    "cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16') && !cidr('10.1.0.0/16').containsCIDR(cidr('10.0.0.0/8'))",
    "cidr('10.1.2.3/8').ip() == ip('10.1.2.3') && cidr('10.1.2.3/8').masked() == cidr('10.0.0.0/8') && cidr('::/64').prefixLength() == 64",
    "string(cidr('10.0.0.0/8')) == '10.0.0.0/8'",
    // URLs
    "isURL('https://example.com:80/a') && isURL('/a/b') && !isURL('a b') && !isURL('../a')",
    "url('https://example.com:80/a%20b?x=1&x=2&y=z').getHost() == 'example.com:80'",
    "url('https://example.com:80/a').getHostname() == 'example.com' && url('https://[::1]:80/').getHostname() == '::1'",
    "url('https://example.com:80/a').getPort() == '80' && url('https://a/').getPort() == '' && url('https://a/').getScheme() == 'https'",
    "url('https://a/b%20c').getEscapedPath() == '/b%20c' && url('https://a/?x=1&x=2&y=z%20').getQuery() == {'x': ['1', '2'], 'y': ['z ']}",
    // quantities
    "isQuantity('1.5Gi') && isQuantity('100m') && isQuantity('2e3') && !isQuantity('1.5X') && !isQuantity('')",
    "quantity('1Gi').isGreaterThan(quantity('1G')) && quantity('500m').isLessThan(quantity('1')) && quantity('1k') == quantity('1000')",
    "quantity('1').compareTo(quantity('2')) == -1 && quantity('1000m').compareTo(quantity('1')) == 0",
    "quantity('-1').sign() == -1 && quantity('0').sign() == 0 && quantity('1Ki').asInteger() == 1024 && !quantity('1m').isInteger()",
    "quantity('1').add(quantity('500m')) == quantity('1.5') && quantity('1').sub(2) == quantity('-1') && quantity('1').add(1).isInteger()",
    "quantity('2.5').asApproximateFloat() == 2.5",
];

/// Expressions that fail when run, and how.
const FAILS: &[(&str, &str)] = &[
    ("1 / 0", "division by zero"),
    ("1 % 0", "modulus by zero"),
    ("9223372036854775807 + 1", "integer overflow"),
    ("-9223372036854775808 / -1", "integer overflow"),
    ("0u - 1u", "unsigned integer overflow"),
    ("{'a': 1}.b", "no such key: b"),
    ("[1][1]", "index out of bounds: 1"),
    ("[1][-1]", "index out of bounds: -1"),
    ("int('x')", "type conversion error from 'string' to 'int': \"x\""),
    ("dyn(1) + dyn('a')", "no such overload"),
    ("dyn(1).all(x, true)", "no such overload"),
    ("[1, 0].all(x, 1 / x == 1)", "division by zero"),
    ("'abc'.charAt(9)", "index out of range: 9"),
    ("'abc'.substring(2, 1)", "invalid substring range. start: 2, end: 1"),
    ("optional.none().value()", "optional.none() dereference"),
    ("[].min()", "min called on empty list"),
    ("[1].slice(0, 2)", "cannot slice(0, 2), list is length 1"),
    ("ip('x')", "IP Address \"x\" parse error during conversion from string"),
    ("quantity('1m').asInteger()", "cannot convert value to integer"),
    ("{'a': 1, 'a': 2}", "duplicate map key"),
    ("duration('x')", "type conversion error from 'string' to 'duration': \"x\""),
    (
        "timestamp('2024-01-01T00:00:00Z').getHours('Moon/Sea')",
        "unknown time zone Moon/Sea: use UTC or an offset like +02:00",
    ),
    ("'x'.matches('(' + '')", "error parsing regexp: error: unclosed group"),
    ("'%d'.format(['x'])", "could not format string with '%d'"),
    ("'%d %d'.format([1])", "index out of range: too few arguments to format"),
];

/// Expressions that are refused before they run, and why.
const REFUSED: &[(&str, &str)] = &[
    ("1 +", "Syntax error: mismatched input '<EOF>' expecting an expression"),
    ("(1", "Syntax error: mismatched input '<EOF>' expecting ')'"),
    ("1 2", "Syntax error: mismatched input '2' expecting <EOF>"),
    ("a.", "Syntax error: no viable alternative at input '.<EOF>'"),
    ("'abc", "Syntax error: unterminated string"),
    ("'\\q'", "Syntax error: invalid escape '\\q'"),
    ("#", "Syntax error: token recognition error at: '#'"),
    ("if", "reserved identifier: if"),
    ("has(1)", "invalid argument to has() macro"),
    ("[1].all(x.y, true)", "argument must be a simple name"),
    ("99999999999999999999", "invalid int literal"),
    ("x", "undeclared reference to 'x' (in container '')"),
    ("foo(1)", "undeclared reference to 'foo' (in container '')"),
    ("1 + 'a'", "found no matching overload for '_+_' applied to '(int, string)'"),
    ("'a'.charAt('b')", "found no matching overload for 'charAt' applied to 'string.(string)'"),
    ("1 == 'a'", "found no matching overload for '_==_' applied to '(int, string)'"),
    ("true ? 1 : 'a'", "found no matching overload for '_?_:_' applied to '(bool, int, string)'"),
    ("1 && true", "expected type 'bool' but found 'int'"),
    ("1.all(x, true)", "expression of type 'int' cannot be range of a comprehension (must be list, map, or dynamic)"),
    ("[1].all(x, x)", "expected type 'bool' but found 'int'"),
    ("'a'.b", "type 'string' does not support field selection"),
    ("'a'.matches('(')", "error parsing regexp: error: unclosed group"),
    ("charAt('a', 1)", "found no matching overload for 'charAt' applied to '(string, int)'"),
];

#[test]
fn true_expressions_hold() {
    for source in TRUE {
        assert_eq!(run(source), Ok(Value::Bool(true)), "{source}");
    }
}

#[test]
fn failures_name_their_cause() {
    for (source, want) in FAILS {
        assert_eq!(run(source), Err((*want).to_owned()), "{source}");
    }
}

#[test]
fn nonsense_is_refused_before_it_runs() {
    for (source, want) in REFUSED {
        let error = Program::compile(source, &[], &Type::Dyn).map(drop).unwrap_err();
        assert!(error.contains(&format!(": {want}\n")), "{source}: {error}");
    }
}

#[test]
fn errors_point_at_the_place() {
    let error = Program::compile("1 == 1 &&\n  yes", &[], &Type::BOOL).map(drop).unwrap_err();
    let want =
        "compilation failed: ERROR: <input>:2:3: undeclared reference to 'yes' (in container '')\n |   yes\n | ..^";
    assert_eq!(error, want);
}

#[test]
fn a_rule_is_a_bool() {
    assert!(Program::compile("'a'", &[], &Type::BOOL).map(drop).unwrap_err().contains("must evaluate to a bool"));
}

/// The checker's table and the functions are written apart; this holds them together.
#[test]
fn every_signature_is_implemented() {
    for (name, _, args, _) in signatures::TABLE {
        let overloads = signatures::overloads(name).iter();
        let overload = overloads.filter(|overload| overload.args.len() == args.split_whitespace().count());
        for overload in overload {
            let args: Vec<_> = overload.args.iter().map(sample).collect();
            let (regexes, mut budget) = (Regexes::default(), Budget::default());
            let mut evaluator = Evaluator::new(Vec::new(), &regexes, &mut budget);
            let outcome = functions::call(&mut evaluator, name, &args);
            assert_ne!(outcome, Err(EvalError::failed("no such overload")), "{name} {args:?}");
        }
    }
}

fn sample(type_: &Type) -> Value {
    match type_ {
        Type::Plain("bool") => Value::Bool(true),
        Type::Plain("uint") => Value::Uint(1),
        Type::Plain("double") => Value::Double(1.0),
        Type::Plain("string") => Value::string("1"),
        Type::Plain("bytes") => Value::Bytes(b"1".as_slice().into()),
        Type::Plain("timestamp") => Value::Timestamp(jiff::Timestamp::UNIX_EPOCH),
        Type::Plain("duration") => Value::Duration(1),
        Type::Plain("net.IP") => Value::Ip("::1".parse().unwrap()),
        Type::Plain("net.CIDR") => Value::Cidr("::/0".parse().unwrap()),
        Type::Plain("kubernetes.URL") => Value::Url(Arc::new(url::Url::parse("/").unwrap())),
        Type::Plain("kubernetes.Quantity") => Value::Quantity(quantity::Quantity::from_int(1)),
        Type::List(item) => Value::list(vec![sample(item)]),
        Type::Map(..) => Value::Map(Arc::default()),
        Type::Optional(inner) => Value::some(sample(inner)),
        _ => Value::Int(1),
    }
}

#[test]
fn cost_is_bounded() {
    let ten = "[1,2,3,4,5,6,7,8,9,10]";
    let nested = (0..8).fold("true".to_owned(), |body, level| format!("{ten}.all(v{level}, {body})"));
    let doubled =
        (0..60).fold("'x'".to_owned(), |body, level| format!("cel.bind(v{level}, {body}, v{level} + v{level})"));
    let replaced = (0..8).fold("'xxxxxxxxxx'".to_owned(), |body, _| format!("{body}.replace('x', 'xxxxxxxxxx')"));
    let joined = format!("{ten}.map(x, {replaced}).join({replaced}).size() > 0");
    let regex = format!("{ten}.all(x, 'a'.matches(string(x) + '(a{{500}}){{500}}'))");
    for source in [nested, doubled, replaced, joined] {
        assert_eq!(run(&source), Err(EvalError::CostLimit.to_string()), "{source}");
    }
    assert!(run(&regex).unwrap_err().contains("regexp"));
}

#[test]
fn depth_is_bounded() {
    let cases = [
        format!("{}1{}", "(".repeat(5000), ")".repeat(5000)),
        format!("{}1{}", "[".repeat(5000), "]".repeat(5000)),
        "!".repeat(5000) + "true",
        "-".repeat(5000) + "d",
        format!("1{}", " + 1".repeat(5000)),
        format!("d{}", ".a".repeat(5000)),
        "true ? 1 : ".repeat(5000) + "1",
        ".".repeat(5000) + "d",
    ];
    for source in cases {
        assert!(run(&source).is_err());
    }
    assert_eq!(run(&format!("true{}", " && true".repeat(5000))), Ok(Value::Bool(true)));
    let near = |open: &str, close: &str| format!("{}1{}", open.repeat(90), close.repeat(90));
    assert!(run(&near("[", "]")).is_ok());
    assert!(run(&near("cel.bind(x, ", ", x)")).is_ok());
    assert!(run(&near("[1].map(x, ", ")")).is_ok());
}
