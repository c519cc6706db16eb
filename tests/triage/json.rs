//! A JSON tree of the test's own, so that nothing of the library under test takes part in the second implementation.

/// A value; whole numbers keep their digits.
#[derive(Clone, Debug, PartialEq)]
pub enum J {
    Null,
    Bool(bool),
    Int(String),
    Float(f64),
    Str(String),
    List(Vec<J>),
    Map(Vec<(String, J)>),
}

impl J {
    pub fn int(value: i128) -> Self {
        Self::Int(value.to_string())
    }

    pub fn str(text: &str) -> Self {
        Self::Str(text.into())
    }

    pub fn get(&self, key: &str) -> Option<&Self> {
        match self {
            Self::Map(members) => members.iter().find(|(name, _)| name == key).map(|(_, value)| value),
            _ => None,
        }
    }

    pub fn at(&mut self, key: &str) -> &mut Self {
        let Self::Map(members) = self else { panic!("no object around {key}") };
        let place = members.iter().position(|(name, _)| name == key).unwrap_or_else(|| panic!("no {key}"));
        &mut members[place].1
    }

    pub fn set(&mut self, key: &str, value: Self) {
        self.remove(key);
        if let Self::Map(members) = self {
            members.push((key.into(), value));
        }
    }

    pub fn remove(&mut self, key: &str) {
        if let Self::Map(members) = self {
            members.retain(|(name, _)| name != key);
        }
    }

    pub fn items(&mut self) -> &mut Vec<Self> {
        let Self::List(items) = self else { panic!("no list") };
        items
    }

    /// Canonical text, sorted by repeated search for the smallest key.
    pub fn canonical(&self) -> String {
        match self {
            Self::List(items) => format!("[{}]", items.iter().map(Self::canonical).collect::<Vec<_>>().join(",")),
            Self::Map(members) => {
                let mut left: Vec<&(String, Self)> = members.iter().collect();
                let mut parts = Vec::new();
                while let Some(smallest) = left.iter().min_by_key(|(name, _)| name).copied() {
                    left.retain(|other| !std::ptr::eq(*other, smallest));
                    parts.push(format!("{}:{}", quoted(&smallest.0), smallest.1.canonical()));
                }
                format!("{{{}}}", parts.join(","))
            }
            other => other.scalar(),
        }
    }

    /// The same value with members in their own order and white space in between.
    pub fn loose(&self) -> String {
        match self {
            Self::List(items) => format!("[ {} ]", items.iter().map(Self::loose).collect::<Vec<_>>().join(" ,\n")),
            Self::Map(members) => {
                let member = |(name, value): &(String, Self)| format!("{} : {}", quoted(name), value.loose());
                format!("{{ {} }}", members.iter().map(member).collect::<Vec<_>>().join(",\t"))
            }
            other => other.scalar(),
        }
    }

    fn scalar(&self) -> String {
        match self {
            Self::Null => "null".into(),
            Self::Bool(flag) => flag.to_string(),
            Self::Int(digits) => digits.clone(),
            Self::Float(value) => python_float(*value),
            Self::Str(text) => quoted(text),
            Self::List(_) | Self::Map(_) => unreachable!("containers are written above"),
        }
    }
}

fn quoted(text: &str) -> String {
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\') {
        return format!("\"{text}\"");
    }
    let mut out = String::from("\"");
    for unit in text.encode_utf16() {
        match u8::try_from(unit) {
            Ok(byte @ (b'"' | b'\\')) => out.extend(['\\', char::from(byte)]),
            Ok(byte @ b' '..=b'~') => out.push(char::from(byte)),
            Ok(b'\n') => out.push_str("\\n"),
            Ok(b'\t') => out.push_str("\\t"),
            _ => out.extend(format!("\\u{unit:04x}").chars()),
        }
    }
    out + "\""
}

/// Python's text for a float, by trying one digit after the other until the text reads back.
pub fn python_float(value: f64) -> String {
    let precision = (0..17).find(|digits| format!("{value:.digits$e}").parse() == Ok(value)).unwrap_or(17);
    let text = format!("{value:.precision$e}");
    let (mantissa, exponent) = text.split_once('e').unwrap();
    let exponent: i32 = exponent.parse().unwrap();
    if !(-4..16).contains(&exponent) && value != 0.0 {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{mantissa}e{sign}{:02}", exponent.abs());
    }
    let decimals = i32::try_from(precision).unwrap() - exponent;
    let decimals = usize::try_from(decimals.max(1)).unwrap();
    format!("{value:.decimals$}")
}
