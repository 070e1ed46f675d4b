//! Who owns what, written down as flat facts: an independent, slow and obvious version of server-side apply for objects that
//! have a map, a set and a list of named items, all of scalars.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

/// One thing that can be owned.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fact {
    Entry(String),
    Member(String),
    Item(String),
    ItemValue(String),
}

/// An object: every fact about it, with its value (0 for facts that only exist).
pub type Facts = BTreeMap<Fact, i64>;

/// `(manager, "Apply" or "Update")`
pub type Writer = (String, &'static str);

#[derive(Debug, Default, Clone)]
pub struct Model {
    pub facts: Facts,
    pub owners: BTreeMap<Fact, BTreeSet<Writer>>,
}

impl Model {
    /// Applies a configuration, or says how many conflicts there are.
    pub fn apply(&mut self, manager: &str, config: &Facts, force: bool) -> Result<(), usize> {
        let writer = (manager.to_owned(), "Apply");
        let differs = |fact: &Fact, value: &i64| self.facts.get(fact).is_some_and(|live| live != value);
        let in_the_way = config.iter().filter(|(fact, value)| differs(fact, value)).map(|(fact, _)| {
            self.owners.get(fact).map_or(0, |owners| owners.iter().filter(|owner| **owner != writer).count())
        });
        let conflicts = in_the_way.sum();
        if conflicts > 0 && !force {
            return Err(conflicts);
        }
        self.give_up(&writer, config);
        for (fact, value) in config {
            if self.facts.insert(fact.clone(), *value).is_some_and(|before| before != *value) {
                self.owners.remove(fact);
            }
            self.owners.entry(fact.clone()).or_default().insert(writer.clone());
        }
        Ok(())
    }

    /// Replaces the object.
    pub fn update(&mut self, manager: &str, new: &Facts) {
        let writer = (manager.to_owned(), "Update");
        self.owners.retain(|fact, _| new.contains_key(fact));
        for (fact, value) in new {
            if self.facts.get(fact) != Some(value) {
                self.owners.insert(fact.clone(), BTreeSet::from([writer.clone()]));
            }
        }
        self.facts = new.clone();
    }

    fn give_up(&mut self, writer: &Writer, config: &Facts) {
        let owned: Vec<_> =
            self.owners.iter().filter(|(_, owners)| owners.contains(writer)).map(|(fact, _)| fact.clone()).collect();
        for fact in owned.into_iter().filter(|fact| !config.contains_key(fact)) {
            let Some(owners) = self.owners.get_mut(&fact) else { continue };
            owners.remove(writer);
            if owners.is_empty() {
                self.forget(&fact);
            }
        }
    }

    /// What is removed is nobody's, and an item goes with its value.
    fn forget(&mut self, fact: &Fact) {
        self.facts.remove(fact);
        self.owners.remove(fact);
        if let Fact::Item(name) = fact {
            self.forget(&Fact::ItemValue(name.clone()));
        }
    }
}

/// The spec that states these facts.
pub fn to_spec(facts: &Facts) -> Value {
    let (mut map, mut set, mut items) = (Map::new(), Vec::new(), BTreeMap::new());
    for (fact, value) in facts {
        match fact {
            Fact::Entry(name) => {
                map.insert(name.clone(), json!(value.to_string()));
            }
            Fact::Member(name) => set.push(json!(name)),
            Fact::Item(name) => {
                items.insert(name.clone(), json!({"name": name}));
            }
            Fact::ItemValue(name) => {
                items.entry(name.clone()).or_insert_with(|| json!({"name": name}))["value"] = json!(value);
            }
        }
    }
    let items: Vec<_> = items.into_values().collect();
    let parts = [("map", json!(map)), ("set", json!(set)), ("items", json!(items))];
    let is_stated = |part: &Value| *part != json!({}) && *part != json!([]);
    Value::Object(
        parts.into_iter().filter(|(_, part)| is_stated(part)).map(|(name, part)| (name.to_owned(), part)).collect(),
    )
}

pub fn from_object(object: &Value) -> Facts {
    let spec = &object["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut facts = Facts::new();
    for (name, value) in spec["map"].as_object().into_iter().flatten() {
        facts.insert(Fact::Entry(name.clone()), text(value).parse().unwrap_or(-1));
    }
    for member in spec["set"].as_array().into_iter().flatten() {
        facts.insert(Fact::Member(text(member)), 0);
    }
    for item in spec["items"].as_array().into_iter().flatten() {
        facts.insert(Fact::Item(text(&item["name"])), 0);
        if let Some(value) = item["value"].as_i64() {
            facts.insert(Fact::ItemValue(text(&item["name"])), value);
        }
    }
    facts
}

/// The owners that an object names, read from the text of `managedFields` without the code under test.
pub fn owners_of(object: &Value) -> BTreeMap<Fact, BTreeSet<Writer>> {
    let mut owners: BTreeMap<Fact, BTreeSet<Writer>> = BTreeMap::new();
    for entry in object["metadata"]["managedFields"].as_array().into_iter().flatten() {
        let operation = if entry["operation"] == "Apply" { "Apply" } else { "Update" };
        let writer = (entry["manager"].as_str().unwrap_or_default().to_owned(), operation);
        for fact in owned_facts(&entry["fieldsV1"]["f:spec"]) {
            owners.entry(fact).or_default().insert(writer.clone());
        }
    }
    owners
}

fn owned_facts(spec: &Value) -> Vec<Fact> {
    let keys = |part: &str| spec[part].as_object().cloned().unwrap_or_default();
    let mut facts = Vec::new();
    for key in keys("f:map").keys().filter_map(|key| key.strip_prefix("f:")) {
        facts.push(Fact::Entry(key.to_owned()));
    }
    for key in keys("f:set").keys().filter_map(|key| key.strip_prefix("v:")) {
        facts.push(Fact::Member(key.trim_matches('"').to_owned()));
    }
    for (key, fields) in keys("f:items") {
        let Some(name) = key.strip_prefix(r#"k:{"name":""#).and_then(|rest| rest.strip_suffix(r#""}"#)) else {
            continue;
        };
        if fields.get(".").is_some() || fields == json!({}) {
            facts.push(Fact::Item(name.to_owned()));
        }
        if fields.get("f:value").is_some() {
            facts.push(Fact::ItemValue(name.to_owned()));
        }
    }
    facts
}
