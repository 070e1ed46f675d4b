//! Lists and watches against a model: pages while others write, and selectors.
//!
//! The objects of a case have a namespace of their own, and all cases of a test share a server. Only this test writes there, so that the
//! model knows every resourceVersion.

use std::collections::BTreeMap;

use futures::AsyncBufReadExt;
use http::{Method, Request};
use kube::Client;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

const KEYS: [&str; 3] = ["app", "tier", "example.com/zone"];
const VALUES: [&str; 3] = ["", "blue", "green-1.x"];
const NAMES: usize = 9;

type Labels = BTreeMap<&'static str, &'static str>;

#[derive(Debug, Clone)]
enum Write {
    Put(usize, Labels),
    Delete(usize),
}

#[derive(Debug, Clone)]
enum Term {
    Equal(&'static str, &'static str),
    Unequal(&'static str, &'static str),
    In(&'static str, Vec<&'static str>),
    NotIn(&'static str, Vec<&'static str>),
    Exists(&'static str),
    Absent(&'static str),
    Named(usize),
    NotNamed(usize),
}

/// A conjunction: label terms and field terms are sent apart, and both must hold.
type Selector = Vec<Term>;

/// An object as the model knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Known {
    labels: Labels,
    revision: String,
}

type Model = BTreeMap<usize, Known>;

#[test]
fn pages_show_one_moment_whatever_is_written_between_them() {
    let cases = (writes(0..24), 1..6_usize, vec(writes(0..5), 8), prop_oneof![Just(Vec::new()), selector()]);
    check(24, cases, |space, (before, limit, between, selector)| {
        space.run(async |space| {
            let mut model = Model::new();
            space.write_all(&mut model, &before).await;
            let moment = chosen(&model, &selector);
            let (mut shown, mut versions, mut token) = (Vec::new(), Vec::new(), String::new());
            for writes in between.iter().chain(std::iter::repeat(&Vec::new())) {
                let page = space.list(&selector, &format!("&limit={limit}&continue={token}")).await;
                let items = items(&page);
                let left = moment.len() - shown.len();
                prop_assert_eq!(items.len(), left.min(limit));
                if selector.is_empty() && left > limit {
                    prop_assert_eq!(&page["metadata"]["remainingItemCount"], &json!(left - limit));
                }
                shown.extend(items);
                versions.push(page["metadata"]["resourceVersion"].clone());
                token = page["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
                if token.is_empty() {
                    break;
                }
                space.write_all(&mut model, writes).await;
            }
            prop_assert_eq!(shown, moment);
            prop_assert!(versions.windows(2).all(|pair| pair[0] == pair[1]), "{:?}", versions);
            Ok(())
        })
    });
}

#[test]
fn a_list_shows_exactly_what_its_selectors_choose() {
    check(24, (writes(0..20), vec(selector(), 8)), |space, (writes, selectors)| {
        space.run(async |space| {
            let mut model = Model::new();
            space.write_all(&mut model, &writes).await;
            for selector in selectors {
                let list = space.list(&selector, "").await;
                prop_assert_eq!(items(&list), chosen(&model, &selector), "{:?}", selector);
            }
            Ok(())
        })
    });
}

#[test]
fn a_watch_shows_what_comes_into_and_leaves_its_selection() {
    check(6, (writes(0..8), writes(1..30), vec(selector(), 6)), |space, (before, writes, selectors)| {
        space.run(async |space| {
            let mut model = Model::new();
            space.write_all(&mut model, &before).await;
            let start = space.list(&Vec::new(), "").await["metadata"]["resourceVersion"].clone();
            let mut states = vec![model.clone()];
            for write in &writes {
                space.write(&mut model, write).await;
                states.push(model.clone());
            }
            let watches = selectors.iter().map(|selector| space.watch(selector, &start));
            let watches = futures::future::join_all(watches).await;
            for (selector, events) in selectors.iter().zip(watches) {
                let wanted: Vec<_> =
                    states.windows(2).filter_map(|pair| difference(&pair[0], &pair[1], selector)).collect();
                prop_assert_eq!(events, wanted, "{:?}", selector);
            }
            Ok(())
        })
    });
}

/// One server, and a namespace for each case.
struct Space<'a> {
    runtime: &'a Runtime,
    client: &'a Client,
    namespace: String,
}

impl Space<'_> {
    fn run(&self, case: impl AsyncFnOnce(&Self) -> Result<(), TestCaseError>) -> Result<(), TestCaseError> {
        self.runtime.block_on(async {
            let namespace = json!({ "metadata": { "name": self.namespace } });
            self.send(Method::POST, "/api/v1/namespaces", "application/json", &namespace).await.unwrap();
            case(self).await
        })
    }

    async fn write_all(&self, model: &mut Model, writes: &[Write]) {
        for write in writes {
            self.write(model, write).await;
        }
    }

    async fn write(&self, model: &mut Model, write: &Write) {
        match write {
            Write::Put(number, labels) => {
                let mut object = json!({ "metadata": { "name": name(*number), "labels": labels } });
                // So that even the same labels are a change.
                object["stringData"] = json!({ "was": model.get(number).map(|known| &known.revision) });
                let (method, path) = match model.contains_key(number) {
                    true => (Method::PUT, self.path(&name(*number))),
                    false => (Method::POST, self.path("")),
                };
                let written = self.send(method, &path, "application/json", &object).await.unwrap();
                let revision = written["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
                model.insert(*number, Known { labels: labels.clone(), revision });
            }
            Write::Delete(number) => {
                let deleted = self.send(Method::DELETE, &self.path(&name(*number)), "", &Value::Null).await;
                assert_eq!(deleted.is_ok(), model.remove(number).is_some());
            }
        }
    }

    async fn list(&self, selector: &Selector, more: &str) -> Value {
        let path = format!("{}?{}{more}", self.path(""), query(selector));
        self.send(Method::GET, &path, "", &Value::Null).await.unwrap()
    }

    /// What a watch of a second shows: type, object and, but for a real deletion, its resourceVersion.
    async fn watch(&self, selector: &Selector, start: &Value) -> Vec<(String, usize, Option<String>)> {
        let start = start.as_str().unwrap();
        let path = format!("{}?{}&watch=true&timeoutSeconds=1&resourceVersion={start}", self.path(""), query(selector));
        let request = Request::get(path).body(Vec::new()).unwrap();
        let mut stream = Box::pin(self.client.request_stream(request).await.unwrap());
        let (mut events, mut line) = (Vec::new(), String::new());
        while stream.read_line(&mut line).await.unwrap() > 0 {
            let event: Value = serde_json::from_str(&line).unwrap();
            line.clear();
            let (kind, object) = (event["type"].as_str().unwrap(), &event["object"]["metadata"]);
            let revision = object["resourceVersion"].as_str().map(str::to_owned).filter(|_| kind != "DELETED");
            events.push((kind.to_owned(), number(object["name"].as_str().unwrap()), revision));
        }
        events
    }

    fn path(&self, name: &str) -> String {
        let collection = format!("/api/v1/namespaces/{}/secrets", self.namespace);
        if name.is_empty() { collection } else { format!("{collection}/{name}") }
    }

    async fn send(&self, method: Method, path: &str, content_type: &str, body: &Value) -> kube::Result<Value> {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request = Request::builder().method(method).uri(path).header("content-type", content_type);
        self.client.request(request.body(body).unwrap()).await
    }
}

fn check<S: Strategy>(cases: u32, strategy: S, case: impl Fn(&Space, S::Value) -> Result<(), TestCaseError>) {
    let runtime = Runtime::new().unwrap();
    let server = crate::apiserver();
    let client = runtime.block_on(server.client());
    let count = std::cell::Cell::new(0);
    let config = Config { cases, max_shrink_iters: 60, failure_persistence: None, ..Config::default() };
    let outcome = TestRunner::new(config).run(&strategy, |value| {
        count.set(count.get() + 1);
        case(&Space { runtime: &runtime, client: &client, namespace: format!("case-{}", count.get()) }, value)
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
}

/// The event by which one write shows in a watch; a write changes one object at most.
fn difference(before: &Model, after: &Model, selector: &Selector) -> Option<(String, usize, Option<String>)> {
    let number = (0..NAMES).find(|number| before.get(number) != after.get(number))?;
    let chosen = |model: &Model| model.get(&number).is_some_and(|known| matches(number, known, selector));
    let kind = match (chosen(before), chosen(after)) {
        (false, true) => "ADDED",
        (true, true) => "MODIFIED",
        (true, false) => "DELETED",
        (false, false) => return None,
    };
    let revision = after.get(&number).map(|known| known.revision.clone()).filter(|_| kind != "DELETED");
    Some((kind.to_owned(), number, revision))
}

fn chosen(model: &Model, selector: &Selector) -> Vec<(usize, String)> {
    let chosen = model.iter().filter(|(number, known)| matches(**number, known, selector));
    chosen.map(|(number, known)| (*number, known.revision.clone())).collect()
}

fn matches(number: usize, known: &Known, selector: &Selector) -> bool {
    let label = |key: &str| known.labels.get(key).copied();
    selector.iter().all(|term| match term {
        Term::Equal(key, value) => label(key) == Some(*value),
        Term::Unequal(key, value) => label(key) != Some(*value),
        Term::In(key, values) => label(key).is_some_and(|label| values.contains(&label)),
        Term::NotIn(key, values) => label(key).is_none_or(|label| !values.contains(&label)),
        Term::Exists(key) => label(key).is_some(),
        Term::Absent(key) => label(key).is_none(),
        Term::Named(wanted) => number == *wanted,
        Term::NotNamed(unwanted) => number != *unwanted,
    })
}

fn items(list: &Value) -> Vec<(usize, String)> {
    let metadata = list["items"].as_array().unwrap().iter().map(|item| &item["metadata"]);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    metadata.map(|it| (number(&text(&it["name"])), text(&it["resourceVersion"]))).collect()
}

fn name(number: usize) -> String {
    format!("object-{number}")
}

fn number(name: &str) -> usize {
    name.trim_start_matches("object-").parse().unwrap()
}

/// The selector as it stands in a query.
fn query(selector: &Selector) -> String {
    let (mut labels, mut fields) = (Vec::new(), Vec::new());
    for term in selector {
        match term {
            Term::Equal(key, value) => labels.push(format!("{key}={value}")),
            Term::Unequal(key, value) => labels.push(format!("{key}!={value}")),
            Term::In(key, values) => labels.push(format!("{key} in ({})", values.join(","))),
            Term::NotIn(key, values) => labels.push(format!("{key} notin ({})", values.join(", "))),
            Term::Exists(key) => labels.push((*key).to_owned()),
            Term::Absent(key) => labels.push(format!("!{key}")),
            Term::Named(number) => fields.push(format!("metadata.name={}", name(*number))),
            Term::NotNamed(number) => fields.push(format!("metadata.name!={}", name(*number))),
        }
    }
    let encode = |terms: Vec<String>| terms.join(",").replace('=', "%3D").replace(' ', "+").replace('/', "%2F");
    format!("labelSelector={}&fieldSelector={}", encode(labels), encode(fields))
}

fn writes(count: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Write>> {
    let labels = btree_map(prop::sample::select(&KEYS[..]), prop::sample::select(&VALUES[..]), 0..=KEYS.len());
    let put = (0..NAMES, labels).prop_map(|(number, labels)| Write::Put(number, labels));
    vec(prop_oneof![4 => put, 1 => (0..NAMES).prop_map(Write::Delete)], count)
}

fn selector() -> impl Strategy<Value = Selector> {
    let key = || prop::sample::select(&KEYS[..]);
    let value = || prop::sample::select(&VALUES[..]);
    let values = || vec(value(), 1..3);
    let term = prop_oneof![
        3 => (key(), value()).prop_map(|(key, value)| Term::Equal(key, value)),
        3 => (key(), value()).prop_map(|(key, value)| Term::Unequal(key, value)),
        2 => (key(), values()).prop_map(|(key, values)| Term::In(key, values)),
        2 => (key(), values()).prop_map(|(key, values)| Term::NotIn(key, values)),
        2 => key().prop_map(Term::Exists),
        2 => key().prop_map(Term::Absent),
        1 => (0..NAMES).prop_map(Term::Named),
        1 => (0..NAMES).prop_map(Term::NotNamed),
    ];
    vec(term, 1..4)
}
