//! The files in schemas/ are those that the types give. `XT_SCHEMAS=rewrite` writes them anew.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use xt_contract::{file_name, rewrite, root};
use xt_core::manifest::schemas;

/// Indented, in the order of keys, with a line end: what a person can read and a version control system can compare.
fn printed() -> BTreeMap<String, String> {
    let print = |value: &xt_core::canonical::Value| {
        let json: serde_json::Value = serde_json::from_str(&value.canonical()).unwrap();
        serde_json::to_string_pretty(&json).unwrap() + "\n"
    };
    schemas().iter().map(|(tag, schema)| (file_name(tag), print(schema))).collect()
}

#[test]
fn the_schema_files_are_those_of_the_types() {
    let folder = root().join("schemas");
    let printed = printed();
    if rewrite() {
        for (name, text) in &printed {
            fs::write(folder.join(name), text).unwrap();
        }
    }
    for (name, text) in &printed {
        let found = fs::read_to_string(folder.join(name)).unwrap_or_default();
        assert!(found == *text, "schemas/{name} is stale: run `make generate`");
    }
    let names: BTreeSet<String> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "README.md")
        .collect();
    assert_eq!(names, printed.into_keys().collect(), "schemas/ holds other files than the kinds have");
}

#[test]
fn every_field_and_choice_is_described() {
    fn undescribed(value: &serde_json::Value, at: &str, missing: &mut Vec<String>) {
        if let Some(properties) = value.get("properties").and_then(|p| p.as_object()) {
            for (key, property) in properties {
                let bare = property.get("description").and_then(|text| text.as_str()).is_none_or(str::is_empty);
                if bare && !matches!(key.as_str(), "schema" | "kind" | "id") {
                    missing.push(format!("{at}/{key}"));
                }
            }
        }
        match value {
            serde_json::Value::Object(members) => {
                members.iter().for_each(|(key, inner)| undescribed(inner, &format!("{at}/{key}"), missing));
            }
            serde_json::Value::Array(items) => items.iter().for_each(|inner| undescribed(inner, at, missing)),
            _ => {}
        }
    }
    for (name, text) in printed() {
        let mut missing = Vec::new();
        undescribed(&serde_json::from_str(&text).unwrap(), &name, &mut missing);
        assert!(missing.is_empty(), "{missing:#?}");
    }
}
