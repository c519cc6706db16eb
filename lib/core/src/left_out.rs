//! Fields that are left out when there is nothing to say.

use crate::canonical::Value;
use crate::fault::Faults;
use crate::field::Field;

/// A field that is left out when there is nothing to say: for documents whose form others rely on, which gain a field that
/// few of them have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOut<T>(pub Option<T>);

impl<T: Field> Field for LeftOut<T> {
    fn read(value: &Value, at: &str, faults: &mut Faults) -> Option<Self> {
        T::read(value, at, faults).map(|read| Self(Some(read)))
    }

    fn write(&self) -> Value {
        self.0.write()
    }

    fn schema() -> Value {
        T::schema()
    }

    fn absent() -> Option<Self> {
        Some(Self(None))
    }

    fn present(&self) -> bool {
        self.0.is_some()
    }
}

/// Takes the fields that may be left out from those that a schema requires.
pub fn optional(mut schema: Value, fields: &[(&str, bool)]) -> Value {
    if let Value::Object(members) = &mut schema
        && let Some(Value::List(required)) = members.get_mut("required")
    {
        required.retain(|name| !fields.iter().any(|(field, optional)| *optional && name.as_str() == Some(*field)));
    }
    schema
}
