//! Table of every function: how it is called, with which arguments, and what it returns. Read by the checker; the functions
//! themselves are in `functions/`. Several rows of one name are overloads.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::types::Type;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Function,
    Method,
    Either,
}

#[derive(Debug)]
pub(crate) struct Signature {
    pub(crate) form: Form,
    pub(crate) args: Vec<Type>,
    pub(crate) result: Type,
}

/// All overloads of a function.
pub(crate) fn overloads(name: &str) -> &'static [Signature] {
    static BY_NAME: LazyLock<HashMap<&'static str, Vec<Signature>>> = LazyLock::new(by_name);
    BY_NAME.get(name).map_or(&[], Vec::as_slice)
}

use Form::{Either as E, Function as F, Method as M};

/// Name, form, arguments (a method's receiver first), result. `A` and `B` stand for any type, the same at each place of a row.
pub(crate) const TABLE: &[(&str, Form, &str, &str)] = &[
    // operators
    ("_==_", F, "A A", "bool"),
    ("_!=_", F, "A A", "bool"),
    ("@in", F, "A list<A>", "bool"),
    ("@in", F, "A map<A,B>", "bool"),
    ("!_", F, "bool", "bool"),
    ("-_", F, "int", "int"),
    ("-_", F, "double", "double"),
    ("_+_", F, "int int", "int"),
    ("_+_", F, "uint uint", "uint"),
    ("_+_", F, "double double", "double"),
    ("_+_", F, "string string", "string"),
    ("_+_", F, "bytes bytes", "bytes"),
    ("_+_", F, "list<A> list<A>", "list<A>"),
    ("_+_", F, "duration duration", "duration"),
    ("_+_", F, "timestamp duration", "timestamp"),
    ("_+_", F, "duration timestamp", "timestamp"),
    ("_-_", F, "int int", "int"),
    ("_-_", F, "uint uint", "uint"),
    ("_-_", F, "double double", "double"),
    ("_-_", F, "duration duration", "duration"),
    ("_-_", F, "timestamp duration", "timestamp"),
    ("_-_", F, "timestamp timestamp", "duration"),
    ("_*_", F, "int int", "int"),
    ("_*_", F, "uint uint", "uint"),
    ("_*_", F, "double double", "double"),
    ("_/_", F, "int int", "int"),
    ("_/_", F, "uint uint", "uint"),
    ("_/_", F, "double double", "double"),
    ("_%_", F, "int int", "int"),
    ("_%_", F, "uint uint", "uint"),
    // conversions
    ("dyn", F, "A", "dyn"),
    ("type", F, "A", "type"),
    ("int", F, "int", "int"),
    ("int", F, "uint", "int"),
    ("int", F, "double", "int"),
    ("int", F, "string", "int"),
    ("int", F, "timestamp", "int"),
    ("int", F, "duration", "int"),
    ("uint", F, "int", "uint"),
    ("uint", F, "uint", "uint"),
    ("uint", F, "double", "uint"),
    ("uint", F, "string", "uint"),
    ("double", F, "int", "double"),
    ("double", F, "uint", "double"),
    ("double", F, "double", "double"),
    ("double", F, "string", "double"),
    ("bool", F, "bool", "bool"),
    ("bool", F, "string", "bool"),
    ("string", F, "bool", "string"),
    ("string", F, "int", "string"),
    ("string", F, "uint", "string"),
    ("string", F, "double", "string"),
    ("string", F, "string", "string"),
    ("string", F, "bytes", "string"),
    ("string", F, "timestamp", "string"),
    ("string", F, "duration", "string"),
    ("string", F, "net.IP", "string"),
    ("string", F, "net.CIDR", "string"),
    ("bytes", F, "string", "bytes"),
    ("bytes", F, "bytes", "bytes"),
    ("duration", F, "string", "duration"),
    ("duration", F, "duration", "duration"),
    ("timestamp", F, "string", "timestamp"),
    ("timestamp", F, "int", "timestamp"),
    ("timestamp", F, "timestamp", "timestamp"),
    ("base64.encode", F, "bytes", "string"),
    ("base64.decode", F, "string", "bytes"),
    // sizes
    ("size", E, "string", "int"),
    ("size", E, "bytes", "int"),
    ("size", E, "list<A>", "int"),
    ("size", E, "map<A,B>", "int"),
    // strings
    ("startsWith", M, "string string", "bool"),
    ("endsWith", M, "string string", "bool"),
    ("contains", M, "string string", "bool"),
    ("charAt", M, "string int", "string"),
    ("indexOf", M, "string string", "int"),
    ("indexOf", M, "string string int", "int"),
    ("lastIndexOf", M, "string string", "int"),
    ("lastIndexOf", M, "string string int", "int"),
    ("lowerAscii", M, "string", "string"),
    ("upperAscii", M, "string", "string"),
    ("trim", M, "string", "string"),
    ("reverse", M, "string", "string"),
    ("replace", M, "string string string", "string"),
    ("replace", M, "string string string int", "string"),
    ("split", M, "string string", "list<string>"),
    ("split", M, "string string int", "list<string>"),
    ("substring", M, "string int", "string"),
    ("substring", M, "string int int", "string"),
    ("join", M, "list<string>", "string"),
    ("join", M, "list<string> string", "string"),
    ("format", M, "string list<dyn>", "string"),
    ("strings.quote", F, "string", "string"),
    // regular expressions
    ("matches", E, "string string", "bool"),
    ("find", M, "string string", "string"),
    ("findAll", M, "string string", "list<string>"),
    ("findAll", M, "string string int", "list<string>"),
    // lists and sets
    ("isSorted", M, "list<A>", "bool"),
    ("sum", M, "list<A>", "A"),
    ("min", M, "list<A>", "A"),
    ("max", M, "list<A>", "A"),
    ("indexOf", M, "list<A> A", "int"),
    ("lastIndexOf", M, "list<A> A", "int"),
    ("slice", M, "list<A> int int", "list<A>"),
    ("flatten", M, "list<list<A>>", "list<A>"),
    ("flatten", M, "list<dyn> int", "list<dyn>"),
    ("distinct", M, "list<A>", "list<A>"),
    ("sort", M, "list<A>", "list<A>"),
    ("reverse", M, "list<A>", "list<A>"),
    ("first", M, "list<A>", "optional<A>"),
    ("last", M, "list<A>", "optional<A>"),
    ("sets.contains", F, "list<A> list<A>", "bool"),
    ("sets.equivalent", F, "list<A> list<A>", "bool"),
    ("sets.intersects", F, "list<A> list<A>", "bool"),
    // optional values
    ("optional.none", F, "", "optional<A>"),
    ("optional.of", F, "A", "optional<A>"),
    ("optional.ofNonZeroValue", F, "A", "optional<A>"),
    ("hasValue", M, "optional<A>", "bool"),
    ("value", M, "optional<A>", "A"),
    ("or", M, "optional<A> optional<A>", "optional<A>"),
    ("orValue", M, "optional<A> A", "A"),
    // times
    ("getFullYear", M, "timestamp", "int"),
    ("getFullYear", M, "timestamp string", "int"),
    ("getMonth", M, "timestamp", "int"),
    ("getMonth", M, "timestamp string", "int"),
    ("getDate", M, "timestamp", "int"),
    ("getDate", M, "timestamp string", "int"),
    ("getDayOfMonth", M, "timestamp", "int"),
    ("getDayOfMonth", M, "timestamp string", "int"),
    ("getDayOfWeek", M, "timestamp", "int"),
    ("getDayOfWeek", M, "timestamp string", "int"),
    ("getDayOfYear", M, "timestamp", "int"),
    ("getDayOfYear", M, "timestamp string", "int"),
    ("getHours", M, "timestamp", "int"),
    ("getHours", M, "timestamp string", "int"),
    ("getHours", M, "duration", "int"),
    ("getMinutes", M, "timestamp", "int"),
    ("getMinutes", M, "timestamp string", "int"),
    ("getMinutes", M, "duration", "int"),
    ("getSeconds", M, "timestamp", "int"),
    ("getSeconds", M, "timestamp string", "int"),
    ("getSeconds", M, "duration", "int"),
    ("getMilliseconds", M, "timestamp", "int"),
    ("getMilliseconds", M, "timestamp string", "int"),
    ("getMilliseconds", M, "duration", "int"),
    // addresses, networks, URLs
    ("isIP", F, "string", "bool"),
    ("ip", F, "string", "net.IP"),
    ("ip.isCanonical", F, "string", "bool"),
    ("family", M, "net.IP", "int"),
    ("isUnspecified", M, "net.IP", "bool"),
    ("isLoopback", M, "net.IP", "bool"),
    ("isLinkLocalUnicast", M, "net.IP", "bool"),
    ("isLinkLocalMulticast", M, "net.IP", "bool"),
    ("isGlobalUnicast", M, "net.IP", "bool"),
    ("isCIDR", F, "string", "bool"),
    ("cidr", F, "string", "net.CIDR"),
    ("ip", M, "net.CIDR", "net.IP"),
    ("masked", M, "net.CIDR", "net.CIDR"),
    ("prefixLength", M, "net.CIDR", "int"),
    ("containsIP", M, "net.CIDR net.IP", "bool"),
    ("containsIP", M, "net.CIDR string", "bool"),
    ("containsCIDR", M, "net.CIDR net.CIDR", "bool"),
    ("containsCIDR", M, "net.CIDR string", "bool"),
    ("isURL", F, "string", "bool"),
    ("url", F, "string", "kubernetes.URL"),
    ("getScheme", M, "kubernetes.URL", "string"),
    ("getHost", M, "kubernetes.URL", "string"),
    ("getHostname", M, "kubernetes.URL", "string"),
    ("getPort", M, "kubernetes.URL", "string"),
    ("getEscapedPath", M, "kubernetes.URL", "string"),
    ("getQuery", M, "kubernetes.URL", "map<string,list<string>>"),
    // quantities
    ("isQuantity", F, "string", "bool"),
    ("quantity", F, "string", "kubernetes.Quantity"),
    ("sign", M, "kubernetes.Quantity", "int"),
    ("isInteger", M, "kubernetes.Quantity", "bool"),
    ("asInteger", M, "kubernetes.Quantity", "int"),
    ("asApproximateFloat", M, "kubernetes.Quantity", "double"),
    ("compareTo", M, "kubernetes.Quantity kubernetes.Quantity", "int"),
    ("isGreaterThan", M, "kubernetes.Quantity kubernetes.Quantity", "bool"),
    ("isLessThan", M, "kubernetes.Quantity kubernetes.Quantity", "bool"),
    ("add", M, "kubernetes.Quantity kubernetes.Quantity", "kubernetes.Quantity"),
    ("add", M, "kubernetes.Quantity int", "kubernetes.Quantity"),
    ("sub", M, "kubernetes.Quantity kubernetes.Quantity", "kubernetes.Quantity"),
    ("sub", M, "kubernetes.Quantity int", "kubernetes.Quantity"),
];

const ORDERED: [&str; 5] = ["bool", "string", "bytes", "timestamp", "duration"];
const NUMBERS: [&str; 3] = ["int", "uint", "double"];

fn by_name() -> HashMap<&'static str, Vec<Signature>> {
    let mut all: HashMap<&'static str, Vec<Signature>> = HashMap::new();
    for (name, form, args, result) in TABLE {
        let args = args.split_whitespace().map(type_of).collect();
        all.entry(name).or_default().push(Signature { form: *form, args, result: type_of(result) });
    }
    for name in ["_<_", "_<=_", "_>_", "_>=_"] {
        let same = ORDERED.iter().map(|type_| [*type_, *type_]);
        let numbers = NUMBERS.iter().flat_map(|left| NUMBERS.iter().map(move |right| [*left, *right]));
        let rows = same.chain(numbers).map(|pair| Signature {
            form: F,
            args: pair.iter().map(|type_| type_of(type_)).collect(),
            result: Type::BOOL,
        });
        all.insert(name, rows.collect());
    }
    all
}

/// Reads a type as the table writes it.
fn type_of(text: &'static str) -> Type {
    if let Some((outer, inner)) = text.strip_suffix('>').and_then(|text| text.split_once('<')) {
        return match outer {
            "list" => Type::list(type_of(inner)),
            "optional" => Type::optional(type_of(inner)),
            _ => {
                let (key, value) = inner.split_once(',').unwrap_or((inner, "dyn"));
                Type::map(type_of(key), type_of(value))
            }
        };
    }
    match text {
        "dyn" => Type::Dyn,
        "A" => Type::Parameter(0),
        "B" => Type::Parameter(1),
        plain => Type::Plain(plain),
    }
}
