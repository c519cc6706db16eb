//! man/xt-manifest.5 is the page that the types give. `XT_SCHEMAS=rewrite` writes it anew.
#![allow(clippy::unwrap_used)]

use std::fs;

use xt_contract::page::manifest_page;
use xt_contract::{rewrite, root};
use xt_core::tag;

#[test]
fn the_manual_page_of_documents_is_that_of_the_types() {
    let path = root().join("man/xt-manifest.5");
    let page = manifest_page();
    if rewrite() {
        fs::write(&path, &page).unwrap();
    }
    assert!(fs::read_to_string(&path).unwrap_or_default() == page, "man/xt-manifest.5 is stale: run `make generate`");
}

#[test]
fn the_page_names_every_kind_and_describes_every_field() {
    let page = manifest_page();
    for tag in tag::ALL {
        assert!(page.contains(&format!(".SS {}\n", tag.replace('-', "\\-"))), "{tag}");
    }
    let lines: Vec<&str> = page.lines().collect();
    for (number, _) in lines.iter().enumerate().filter(|(_, line)| **line == ".TP") {
        let (term, meaning) = (lines[number + 1], lines[number + 2]);
        assert!(term.starts_with(".B") || term.starts_with(".I"), "line {}: {term}", number + 2);
        assert!(!meaning.is_empty() && !meaning.starts_with(".TP"), "{term} is not described");
    }
}
