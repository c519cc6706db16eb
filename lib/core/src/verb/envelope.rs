//! What an intent asks for beside resources and isolation: secrets, and where to run.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;

use crate::fault::Faults;
use crate::manifest::intent::{Intent, Network, Profile, Venue};

/// So many secrets may be admitted: each takes a descriptor.
const MOST: usize = 16;

/// Notes what an intent asks for that cannot be had.
pub fn check(intent: &Intent, faults: &mut Faults) {
    let mut seen = BTreeSet::new();
    for (index, name) in intent.secrets.iter().enumerate() {
        let at = format!("intent#/secrets/{index}");
        let letters = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        if !name.as_str().bytes().all(letters) {
            let message =
                format!("{name}: the name of a secret is made of a-z, 0-9 and _, since a variable is named after it");
            faults.add(at.clone(), "intent.secret", message);
        }
        if !seen.insert(name.as_str()) {
            faults.add(at, "intent.secret", format!("{name} stands here a second time"));
        }
    }
    if intent.secrets.len() > MOST {
        faults.add("intent#/secrets", "intent.secret", format!("at most {MOST} secrets are admitted"));
    }
    if intent.network == Network::Loopback && intent.isolation.profile != Profile::Full {
        let message = "the network loopback is a namespace of its own, which only the profile full has";
        faults.add("intent#/network", "intent.network", message);
    }
    if let Venue::Remote { name, egress, provider, retention } = &intent.runtime {
        let message = format!("there is no runtime {name}; this version has: local");
        faults.add("intent#/runtime/name", "intent.runtime", message);
        for (field, value) in [("egress", egress), ("provider", provider), ("retention", retention)] {
            if value.trim().is_empty() {
                let message = "must be said of a remote runtime, in words";
                faults.add(format!("intent#/runtime/{field}"), "intent.runtime", message);
            }
        }
    }
}

/// The variable that holds the number of the descriptor with a secret.
pub fn secret_variable(name: &str) -> String {
    format!("XT_SECRET_{}", name.to_ascii_uppercase())
}
