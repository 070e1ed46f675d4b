//! The part of JSONPath that printer columns, selectable fields and scale paths are written in.
//!
//! `.a.b`, `['a.b']`, `.a\.b`, `[0]`, `[-1]`, `[1:3]`, `[*]`, `.*` and `[?(@.type=="Ready" && @.age > 3)]`. Recursive descent and
//! unions are refused by name: no definition that we know of uses them, and a refused definition is better than an empty column.

use std::cmp::Ordering;

use serde_json::{Map, Number, Value};

/// A parsed path; it borrows nothing, so that it can live as long as the definition that it stands in.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct JsonPath {
    text: String,
    steps: Vec<Step>,
}

#[derive(Debug, Clone, PartialEq)]
enum Step {
    Field(String),
    Index(i64),
    Slice(Option<i64>, Option<i64>),
    All,
    Filter(Vec<Test>),
}

/// One comparison of a filter, or the question whether a path leads anywhere.
#[derive(Debug, Clone, PartialEq)]
enum Test {
    Exists(Operand),
    Compare(Operand, Operator, Operand),
}

#[derive(Debug, Clone, PartialEq)]
enum Operand {
    /// From the element that is being tested (`@`).
    Path(Vec<Step>),
    Literal(Value),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// Longest first: `<=` must not be read as `<`.
const OPERATORS: [(&str, Operator); 6] = [
    ("==", Operator::Equal),
    ("!=", Operator::NotEqual),
    ("<=", Operator::LessOrEqual),
    (">=", Operator::GreaterOrEqual),
    ("<", Operator::Less),
    (">", Operator::Greater),
];

impl JsonPath {
    /// `Err` says what is wrong and where.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let inner = text.strip_prefix('{').and_then(|t| t.strip_suffix('}')).unwrap_or(text);
        let mut parser = Parser { text: inner, at: 0 };
        parser.eat("$");
        let steps = parser.steps()?;
        if parser.at < inner.len() {
            return Err(parser.wrong("a field must start with '.' or '['"));
        }
        Ok(Self { text: text.to_owned(), steps })
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// Everything that the path leads to, in document order.
    pub(crate) fn all<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        walk(&self.steps, value)
    }

    pub(crate) fn first<'a>(&self, value: &'a Value) -> Option<&'a Value> {
        self.all(value).into_iter().next()
    }

    /// Writes the field, creating the maps on the way. `false`, and nothing changed, where the path is more than field names or
    /// something that is not a map is in the way.
    pub(crate) fn set(&self, root: &mut Value, value: Value) -> bool {
        let Some(fields) = self.fields() else { return false };
        let Some((last, parents)) = fields.split_last() else { return false };
        let mut map = root;
        for field in parents {
            let Some(object) = map.as_object_mut() else { return false };
            let entry = object.entry(*field).or_insert(Value::Null);
            if entry.is_null() {
                *entry = Value::Object(Map::new());
            }
            map = entry;
        }
        let Some(object) = map.as_object_mut() else { return false };
        object.insert((*last).to_owned(), value);
        true
    }

    fn fields(&self) -> Option<Vec<&str>> {
        self.steps.iter().map(|step| if let Step::Field(name) = step { Some(name.as_str()) } else { None }).collect()
    }
}

fn walk<'a>(steps: &[Step], value: &'a Value) -> Vec<&'a Value> {
    steps.iter().fold(vec![value], |found, step| found.into_iter().flat_map(|v| step.take(v)).collect())
}

impl Step {
    fn take<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        match (self, value) {
            (Self::Field(name), Value::Object(map)) => map.get(name).into_iter().collect(),
            (Self::Index(index), Value::Array(list)) => {
                position(*index, list.len()).map(|i| &list[i]).into_iter().collect()
            }
            (Self::Slice(from, to), Value::Array(list)) => slice(list, *from, *to).iter().collect(),
            (Self::All, Value::Array(list)) => list.iter().collect(),
            (Self::All, Value::Object(map)) => map.values().collect(),
            (Self::Filter(tests), Value::Array(list)) => {
                list.iter().filter(|v| tests.iter().all(|t| t.holds(v))).collect()
            }
            _ => Vec::new(),
        }
    }
}

/// Negative counts from the end.
fn position(index: i64, length: usize) -> Option<usize> {
    let length = i64::try_from(length).ok()?;
    let index = if index < 0 { index + length } else { index };
    if (0..length).contains(&index) { usize::try_from(index).ok() } else { None }
}

fn slice(list: &[Value], from: Option<i64>, to: Option<i64>) -> &[Value] {
    let length = i64::try_from(list.len()).unwrap_or(i64::MAX);
    let bound =
        |index: i64| usize::try_from(if index < 0 { index + length } else { index }.clamp(0, length)).unwrap_or(0);
    let (from, to) = (bound(from.unwrap_or(0)), bound(to.unwrap_or(length)));
    list.get(from..to).unwrap_or_default()
}

impl Test {
    fn holds(&self, element: &Value) -> bool {
        match self {
            Self::Exists(operand) => operand.value(element).is_some(),
            Self::Compare(left, operator, right) => match (left.value(element), right.value(element)) {
                (Some(left), Some(right)) => operator.holds(left, right),
                _ => false,
            },
        }
    }
}

impl Operand {
    fn value<'a>(&'a self, element: &'a Value) -> Option<&'a Value> {
        match self {
            Self::Path(steps) => walk(steps, element).into_iter().next(),
            Self::Literal(value) => Some(value),
        }
    }
}

impl Operator {
    fn holds(self, left: &Value, right: &Value) -> bool {
        let order = compare(left, right);
        match self {
            Self::Equal => order == Some(Ordering::Equal),
            Self::NotEqual => order != Some(Ordering::Equal),
            Self::Less => order == Some(Ordering::Less),
            Self::LessOrEqual => matches!(order, Some(Ordering::Less | Ordering::Equal)),
            Self::Greater => order == Some(Ordering::Greater),
            Self::GreaterOrEqual => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
        }
    }
}

/// `None` where the two cannot be ordered; equal values of any type are equal.
fn compare(left: &Value, right: &Value) -> Option<Ordering> {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => left.as_f64()?.partial_cmp(&right.as_f64()?),
        (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
        _ => (left == right).then_some(Ordering::Equal),
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl Parser<'_> {
    fn steps(&mut self) -> Result<Vec<Step>, String> {
        let mut steps = Vec::new();
        loop {
            if self.eat("..") {
                return Err(self.wrong("recursive descent is not supported"));
            } else if self.eat(".*") || self.eat("[*]") {
                steps.push(Step::All);
            } else if self.eat(".") {
                if let Some(step) = self.field()? {
                    steps.push(step);
                }
            } else if self.eat("[") {
                steps.push(self.bracket()?);
            } else {
                return Ok(steps);
            }
        }
    }

    /// A name after a dot. `None` for the dot alone, which means the value itself, and for the dot in `.['a']`.
    fn field(&mut self) -> Result<Option<Step>, String> {
        let mut name = String::new();
        while let Some(c) = self.peek() {
            match c {
                '\\' => {
                    self.at += 1;
                    let escaped = self.peek().ok_or_else(|| self.wrong("nothing follows the '\\'"))?;
                    name.push(self.take(escaped));
                }
                '.' | '[' | ']' | ')' | '(' | '=' | '!' | '<' | '>' | '&' | '|' | ',' | '\'' | '"' => break,
                c if c.is_whitespace() => break,
                c => name.push(self.take(c)),
            }
        }
        match self.peek() {
            _ if !name.is_empty() => Ok(Some(Step::Field(name))),
            None | Some('[') => Ok(None),
            Some(_) => Err(self.wrong("a field name is missing")),
        }
    }

    /// What stands between `[` and `]`.
    fn bracket(&mut self) -> Result<Step, String> {
        self.blanks();
        let step = if self.eat("?(") {
            let tests = self.tests()?;
            self.expect(")")?;
            Step::Filter(tests)
        } else if let Some(text) = self.quoted()? {
            Step::Field(text)
        } else {
            let from = self.integer()?;
            match (self.eat(":"), from) {
                (true, from) => Step::Slice(from, self.integer()?),
                (false, Some(index)) => Step::Index(index),
                (false, None) => return Err(self.wrong("an index, a quoted name, '*' or a filter is missing")),
            }
        };
        self.blanks();
        if self.eat(",") {
            return Err(self.wrong("a union is not supported"));
        }
        self.expect("]")?;
        Ok(step)
    }

    fn tests(&mut self) -> Result<Vec<Test>, String> {
        let mut tests = vec![self.test()?];
        while self.eat("&&") {
            tests.push(self.test()?);
        }
        if self.eat("||") {
            return Err(self.wrong("'||' is not supported"));
        }
        Ok(tests)
    }

    fn test(&mut self) -> Result<Test, String> {
        let left = self.operand()?;
        let Some((_, operator)) = OPERATORS.into_iter().find(|(text, _)| self.eat(text)) else {
            return Ok(Test::Exists(left));
        };
        Ok(Test::Compare(left, operator, self.operand()?))
    }

    fn operand(&mut self) -> Result<Operand, String> {
        self.blanks();
        let operand = if self.eat("@") {
            Operand::Path(self.steps()?)
        } else if let Some(text) = self.quoted()? {
            Operand::Literal(Value::String(text))
        } else {
            Operand::Literal(self.word()?)
        };
        self.blanks();
        Ok(operand)
    }

    /// A number, `true`, `false` or `null`.
    fn word(&mut self) -> Result<Value, String> {
        let rest = &self.text[self.at..];
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || "+-.".contains(c))).unwrap_or(rest.len());
        let word = &rest[..end];
        let value = match word {
            "true" => Some(Value::Bool(true)),
            "false" => Some(Value::Bool(false)),
            "null" | "nil" => Some(Value::Null),
            number => number.parse::<f64>().ok().and_then(Number::from_f64).map(Value::Number),
        };
        let value = value.ok_or_else(|| self.wrong("a quoted text, a number, true or false is missing"))?;
        self.at += end;
        Ok(value)
    }

    fn quoted(&mut self) -> Result<Option<String>, String> {
        let Some(quote @ ('\'' | '"')) = self.peek() else { return Ok(None) };
        self.at += 1;
        let mut text = String::new();
        loop {
            let c = self.peek().ok_or_else(|| self.wrong("the closing quote is missing"))?;
            self.take(c);
            match c {
                '\\' => {
                    let escaped = self.peek().ok_or_else(|| self.wrong("the closing quote is missing"))?;
                    text.push(self.take(escaped));
                }
                c if c == quote => return Ok(Some(text)),
                c => text.push(c),
            }
        }
    }

    fn integer(&mut self) -> Result<Option<i64>, String> {
        let rest = &self.text[self.at..];
        let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '-')).unwrap_or(rest.len());
        if end == 0 {
            return Ok(None);
        }
        let index = rest[..end].parse().map_err(|_| self.wrong("not an index"))?;
        self.at += end;
        Ok(Some(index))
    }

    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    fn take(&mut self, c: char) -> char {
        self.at += c.len_utf8();
        c
    }

    fn eat(&mut self, token: &str) -> bool {
        let found = self.text[self.at..].starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    fn expect(&mut self, token: &str) -> Result<(), String> {
        if self.eat(token) { Ok(()) } else { Err(self.wrong(&format!("'{token}' is missing"))) }
    }

    fn blanks(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
    }

    fn wrong(&self, what: &str) -> String {
        format!("{what} at position {} of '{}'", self.at, self.text)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn document() -> Value {
        json!({
            "metadata": { "name": "a", "labels": { "app.kubernetes.io/name": "x", "plain": "y" } },
            "spec": { "ports": [80, 443, 8080], "empty": null },
            "status": { "conditions": [
                { "type": "Ready", "status": "True", "age": 3 },
                { "type": "Live", "status": "False", "age": 12 },
            ] },
        })
    }

    #[test]
    fn paths_lead_where_kubectl_would_go() {
        let table = [
            (".metadata.name", json!(["a"])),
            ("{.metadata.name}", json!(["a"])),
            ("$.metadata.name", json!(["a"])),
            (".metadata.nothing.below", json!([])),
            (r".metadata.labels.app\.kubernetes\.io/name", json!(["x"])),
            (".metadata.labels['app.kubernetes.io/name']", json!(["x"])),
            (".metadata.labels[\"plain\"]", json!(["y"])),
            (".metadata.labels.*", json!(["x", "y"])),
            (".spec.ports[0]", json!([80])),
            (".spec.ports[-1]", json!([8080])),
            (".spec.ports[9]", json!([])),
            (".spec.ports[-9]", json!([])),
            (".spec.ports[*]", json!([80, 443, 8080])),
            (".spec.ports[1:]", json!([443, 8080])),
            (".spec.ports[:-1]", json!([80, 443])),
            (".spec.ports[2:1]", json!([])),
            (".spec.empty", json!([null])),
            (".spec.ports.name", json!([])),
            (".metadata.name[0]", json!([])),
            (r#".status.conditions[?(@.type=="Ready")].status"#, json!(["True"])),
            (".status.conditions[?(@.type == 'Live')].status", json!(["False"])),
            (".status.conditions[?(@.type!='Live')].status", json!(["True"])),
            (".status.conditions[?(@.age > 3)].type", json!(["Live"])),
            (".status.conditions[?(@.age >= 3)].type", json!(["Ready", "Live"])),
            (".status.conditions[?(@.age<12)].type", json!(["Ready"])),
            (".status.conditions[?(@.age<=12 && @.status=='False')].type", json!(["Live"])),
            (".status.conditions[?(@.missing)].type", json!([])),
            (".status.conditions[?(@.age)].type", json!(["Ready", "Live"])),
            (".status.conditions[?('x'==@.type)].type", json!([])),
            (".spec.ports[?(@ > 100)]", json!([443, 8080])),
        ];
        for (path, expected) in table {
            let parsed = JsonPath::parse(path).unwrap_or_else(|e| panic!("{path}: {e}"));
            assert_eq!(json!(parsed.all(&document())), expected, "{path}");
            assert_eq!(parsed.first(&document()), expected.get(0), "{path}");
            assert_eq!(parsed.as_str(), path);
        }
    }

    #[test]
    fn the_dot_alone_is_the_document() {
        assert_eq!(JsonPath::parse(".").unwrap().first(&json!(1)), Some(&json!(1)));
    }

    #[test]
    fn what_is_wrong_is_said() {
        let table = [
            ("name", "must start with"),
            ("..name", "recursive descent"),
            (".a[", "index, a quoted name"),
            (".a[0", "']' is missing"),
            (".a[0,1]", "union"),
            (".a['b]", "closing quote"),
            (".a[?(@.b==c)]", "a quoted text, a number"),
            (".a[?(@.b==1 || @.c==2)]", "'||'"),
            (".a[?(@.b==1]", "')' is missing"),
            (".a[1-2]", "not an index"),
            (".a.!b", "a field name is missing"),
            (r".a\", "nothing follows"),
        ];
        for (path, expected) in table {
            let error = JsonPath::parse(path).expect_err(path);
            assert!(error.contains(expected), "{path}: {error}");
        }
    }

    #[test]
    fn a_field_is_set_and_its_parents_made() {
        let mut value = json!({ "spec": null });
        assert!(JsonPath::parse(".spec.scale.replicas").unwrap().set(&mut value, json!(3)));
        assert_eq!(value, json!({ "spec": { "scale": { "replicas": 3 } } }));
        for path in [".spec.scale.replicas.deeper", ".spec.list[0]", "."] {
            assert!(!JsonPath::parse(path).unwrap().set(&mut value, json!(1)), "{path}");
        }
        assert_eq!(value, json!({ "spec": { "scale": { "replicas": 3 } } }));
    }

    /// Every text of up to four of these tokens, 168,421 in all.
    #[test]
    fn no_text_makes_the_parser_panic() {
        const TOKENS: [&str; 20] = [
            ".", "..", "[", "]", "[?(", ")", "@", "==", "<", "&&", "'", "\"", "\\", ":", ",", "*", "0", "-", "a", "ä ",
        ];
        let mut texts = vec![String::new()];
        for _ in 0..4 {
            texts = texts
                .iter()
                .flat_map(|text| TOKENS.map(|token| format!("{text}{token}")))
                .chain([String::new()])
                .collect();
        }
        for text in texts {
            if let Ok(path) = JsonPath::parse(&text) {
                path.all(&document());
                path.set(&mut document(), json!(1));
            }
        }
    }
}
