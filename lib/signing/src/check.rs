//! Whether somebody who is trusted vouches for a bundle.

use xt_core::canonical::Value;
use xt_core::fault::Faults;
use xt_core::manifest::bundle::{Bundle, Signature};
use xt_core::verb::statement;

use crate::envelope::Envelope;
use crate::key::PublicKey;

/// The signatures of a bundle by `keys` among `envelopes`; `name` says in messages where those came from. `said` is what its
/// own evidence says, the statements that vouch for it. That a key has not signed each of them is a fault, and so is every
/// other statement of a key: about other files, or saying something else about these. An envelope that bears the name of a
/// key and cannot be opened with it is a fault, too, whatever others say: somebody changed it, or uses the name.
pub fn signatures(
    (bundle, said): (&Bundle, &[Value]),
    envelopes: &[Envelope],
    keys: &[PublicKey],
    name: &str,
) -> (Vec<Signature>, Faults) {
    let (mut found, mut faults) = (Vec::new(), Faults::new());
    for key in keys {
        let (before, id) = (found.len(), key.id());
        let mut wrong = Vec::new();
        for (number, envelope) in envelopes.iter().enumerate().filter(|(_, envelope)| envelope.concerns(key)) {
            match envelope.opened(key) {
                Err(why) => {
                    let message =
                        format!("envelope {} bears the name of key {id} and does not hold: {why}", number + 1);
                    wrong.push(("signature.broken", message));
                }
                Ok(statement) => match statement::refusal(&statement, bundle, said) {
                    None => found.push(Signature {
                        key: id.clone(),
                        algorithm: key.algorithm().word().into(),
                        predicate: statement::predicate(&statement).into(),
                    }),
                    Some(why) => wrong.push(("signature.subject", format!("signed by key {id}: {why}"))),
                },
            }
        }
        if found.len() == before && wrong.is_empty() {
            let message = match envelopes.len() {
                0 => format!(
                    "there are no signatures here, and one by key {id} is asked for; --signatures names another file"
                ),
                1 => format!("the one signature is not by key {id}"),
                count => format!("none of {count} signatures is by key {id}"),
            };
            faults.add(name, "signature.missing", message);
        }
        if found.len() > before {
            let signed = |predicate: &str| found[before..].iter().any(|one| one.predicate == predicate);
            for predicate in said.iter().map(statement::predicate).filter(|predicate| !signed(predicate)) {
                let message = format!(
                    "key {id} vouches for a part only: its statement {predicate} is not here; it was taken away, or never made"
                );
                wrong.push(("signature.missing", message));
            }
        }
        for (code, message) in wrong {
            faults.add(name, code, message);
        }
    }
    (found, faults)
}

/// How many envelopes are of none of these keys: whatever they say, nobody has looked at it.
pub fn strangers(envelopes: &[Envelope], keys: &[PublicKey]) -> usize {
    envelopes.iter().filter(|envelope| !keys.iter().any(|key| envelope.concerns(key))).count()
}
