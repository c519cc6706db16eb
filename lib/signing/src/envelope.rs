//! DSSE envelopes (Dead Simple Signing Envelope 1.0.2): a payload, its type, and signatures over both.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use xt_core::canonical::{self, Value};
use xt_core::field::object;

use crate::error::SigningError;
use crate::key::{PrivateKey, PublicKey};

/// The type of payloads that are in-toto statements.
pub const PAYLOAD_TYPE: &str = "application/vnd.in-toto+json";
/// The kind of Sigstore bundle that OpenSSF model signing v1.0 reads.
const SIGSTORE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";

/// A payload with its signatures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    payload: Vec<u8>,
    payload_type: String,
    /// Id of the key, as far as it is told, and the signature.
    signatures: Vec<(String, Vec<u8>)>,
}

impl Envelope {
    /// Signs a statement.
    pub fn sign(statement: &Value, key: &PrivateKey) -> Self {
        let payload = statement.canonical().into_bytes();
        let signature = key.sign(&encoded(PAYLOAD_TYPE, &payload));
        Self { payload, payload_type: PAYLOAD_TYPE.into(), signatures: vec![(key.public().id(), signature)] }
    }

    /// The envelope as a document of one line.
    pub fn write(&self) -> Value {
        let signature = |(key, signature): &(String, Vec<u8>)| {
            object([("keyid", key.as_str().into()), ("sig", STANDARD.encode(signature).as_str().into())])
        };
        object([
            ("payload", STANDARD.encode(&self.payload).as_str().into()),
            ("payloadType", self.payload_type.as_str().into()),
            ("signatures", Value::List(self.signatures.iter().map(signature).collect())),
        ])
    }

    /// The ids of the keys that its signatures claim to be by; nobody has checked that.
    pub fn claimed(&self) -> impl Iterator<Item = &str> {
        self.signatures.iter().map(|(key, _)| key.as_str())
    }

    /// Reads every envelope of `text`, one a line; `name` says in messages where it came from.
    pub fn read_lines(text: &[u8], name: &str) -> Result<Vec<Self>, SigningError> {
        let lines = text.split(|byte| *byte == b'\n').enumerate().filter(|(_, line)| !line.trim_ascii().is_empty());
        let read = |(number, line): (usize, &[u8])| {
            Self::read(line).map_err(|why| SigningError::Envelope { name: name.into(), line: number + 1, why })
        };
        lines.map(read).collect()
    }

    fn read(line: &[u8]) -> Result<Self, String> {
        let value = canonical::parse(line).map_err(|error| error.to_string())?;
        let text = |value: &Value, key: &str| {
            value.get(key).and_then(Value::as_str).map(String::from).ok_or(format!("it has no text {key}"))
        };
        let bytes = |value: &Value, key: &str| {
            STANDARD.decode(text(value, key)?).map_err(|error| format!("{key} is no base64: {error}"))
        };
        let Some(Value::List(signatures)) = value.get("signatures") else {
            return Err("it has no list signatures".into());
        };
        let signature = |value: &Value| Ok((text(value, "keyid").unwrap_or_default(), bytes(value, "sig")?));
        Ok(Self {
            payload: bytes(&value, "payload")?,
            payload_type: text(&value, "payloadType")?,
            signatures: signatures.iter().map(signature).collect::<Result<_, String>>()?,
        })
    }

    /// Whether it bears the name of `key`, or is signed by it without.
    pub fn concerns(&self, key: &PublicKey) -> bool {
        let message = encoded(&self.payload_type, &self.payload);
        let id = key.id();
        self.signatures.iter().any(|(claimed, signature)| *claimed == id || key.verifies(&message, signature))
    }

    /// The statement, when `key` signed it. Which key a signature claims to be by decides nothing.
    pub fn opened(&self, key: &PublicKey) -> Result<Value, String> {
        let message = encoded(&self.payload_type, &self.payload);
        if !self.signatures.iter().any(|(_, signature)| key.verifies(&message, signature)) {
            return Err(format!("no signature of it is by key {}", key.id()));
        }
        if self.payload_type != PAYLOAD_TYPE {
            return Err(format!("its payload is of the type {}, and not {PAYLOAD_TYPE}", self.payload_type));
        }
        canonical::parse(&self.payload).map_err(|error| format!("its payload: {error}"))
    }
}

/// What is signed: type and payload with their lengths (DSSE, "PAE").
fn encoded(payload_type: &str, payload: &[u8]) -> Vec<u8> {
    let mut message = format!("DSSEv1 {} {payload_type} {} ", payload_type.len(), payload.len()).into_bytes();
    message.extend_from_slice(payload);
    message
}

/// A signed statement as the Sigstore bundle that OpenSSF model signing v1.0 keeps in `model.sig`. Only a key on P-256 can
/// sign it; `name` says in messages where it came from.
pub fn sigstore_bundle(statement: &Value, key: &PrivateKey, name: &str) -> Result<Value, SigningError> {
    if matches!(key, PrivateKey::Ed25519(_)) {
        return Err(SigningError::Curve { name: name.into() });
    }
    let mut envelope = Envelope::sign(statement, key);
    // The bundle says itself which key it is.
    for (key, _) in &mut envelope.signatures {
        key.clear();
    }
    let hint = object([("hint", key.public().id().as_str().into())]);
    let material = object([("publicKey", hint), ("tlogEntries", Value::List(Vec::new()))]);
    Ok(Value::Object(BTreeMap::from([
        ("mediaType".into(), SIGSTORE.into()),
        ("verificationMaterial".into(), material),
        ("dsseEnvelope".into(), envelope.write()),
    ])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Algorithm;

    /// The example of the DSSE specification, protocol.md.
    #[test]
    fn what_is_signed_is_what_the_specification_shows() {
        assert_eq!(
            encoded("http://example.com/HelloWorld", b"hello world"),
            b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
        );
    }

    #[test]
    fn an_envelope_is_opened_by_its_key_and_no_other_and_not_after_a_change() {
        let key = PrivateKey::generate(Algorithm::P256).unwrap();
        let statement = object([("_type", "test".into())]);
        let envelope = Envelope::sign(&statement, &key);
        let text = format!("{}\n\n", envelope.write().canonical());
        let read = Envelope::read_lines(text.as_bytes(), "x").unwrap();
        assert_eq!(read, std::slice::from_ref(&envelope));
        assert_eq!(read[0].opened(&key.public()).unwrap(), statement);
        let other = PrivateKey::generate(Algorithm::P256).unwrap();
        assert!(envelope.opened(&other.public()).unwrap_err().contains("no signature"));
        let mut claimed = Envelope::sign(&statement, &other);
        claimed.signatures[0].0 = key.public().id();
        assert!(claimed.opened(&key.public()).is_err(), "whose name it bears decides nothing");
        let mut changed = envelope.clone();
        changed.payload[3] ^= 1;
        assert!(changed.opened(&key.public()).is_err());
        let mut retyped = envelope;
        retyped.payload_type = "text/plain".into();
        assert!(retyped.opened(&key.public()).is_err());
    }

    #[test]
    fn a_line_that_is_no_envelope_is_named() {
        for (text, says) in [
            ("{}", "line 1"),
            ("\n[", "line 2"),
            ("{\"signatures\":[],\"payload\":\"*\",\"payloadType\":\"x\"}", "base64"),
        ] {
            let error = Envelope::read_lines(text.as_bytes(), "s.jsonl").unwrap_err().to_string();
            assert!(error.contains(says) && error.contains("s.jsonl"), "{error}");
        }
    }

    #[test]
    fn model_signing_gets_no_ed25519_key() {
        let key = PrivateKey::generate(Algorithm::Ed25519).unwrap();
        assert!(sigstore_bundle(&Value::Null, &key, "key.pem").unwrap_err().to_string().contains("key.pem"));
    }
}
