//! Terms: under which licence something is, and of which classes of data. They are what somebody declared; nothing here finds
//! out whether it is so.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::fault::Faults;
use crate::field::child;
use crate::licence::Licence;

crate::record! {
    /// What was declared of data or of a bundle.
    pub struct Terms {
        /// Its licence, an SPDX expression; `null` when none was declared.
        licence: Option<Licence>,
        /// Its classes of data, in the order of the words here, each once; empty when none was declared.
        classes: Vec<DataClass>,
    }
}

crate::words! {
    /// A class of data.
    pub enum DataClass {
        /// Anybody may have it. No other class stands beside it.
        Public "public",
        /// It stays in the house.
        Internal "internal",
        /// Whoever has it must keep it from others.
        Confidential "confidential",
        /// It is about people who can be told from it.
        Personal "personal",
    }
}

impl Terms {
    /// What a person declares, in any order; or what is wrong with it.
    pub fn declare(licence: Option<Licence>, mut classes: Vec<DataClass>) -> Result<Self, String> {
        classes.sort_unstable();
        classes.dedup();
        let terms = Self { licence, classes };
        let mut faults = Faults::new();
        terms.check("", &mut faults);
        faults.0.into_iter().next().map_or(Ok(terms), |fault| Err(fault.message))
    }

    /// Notes what is wrong with what a document says; `at` is where it stands there.
    pub fn check(&self, at: &str, faults: &mut Faults) {
        if let Some(why) = self.licence.as_ref().and_then(Licence::wrong) {
            faults.add(child(at, "licence"), "terms.licence", why);
        }
        let classes = &self.classes;
        if !classes.windows(2).all(|pair| pair[0] < pair[1]) {
            let order: Vec<&str> = DataClass::ALL.iter().map(|class| class.word()).collect();
            let message = format!("the classes stand in this order, each once: {}", order.join(", "));
            faults.add(child(at, "classes"), "terms.classes", message);
        }
        if classes.len() > 1 && classes.contains(&DataClass::Public) {
            faults.add(child(at, "classes"), "terms.classes", "what is public is of no other class");
        }
    }

    /// Classes of `data` that keep it from somebody and do not stand here.
    pub fn lacks(&self, data: &Self) -> Vec<DataClass> {
        let kept = data.classes.iter().copied().filter(|class| *class != DataClass::Public);
        kept.filter(|class| !self.classes.contains(class)).collect()
    }

    /// Both, for a person; `None` when nothing was declared.
    pub fn sentence(&self) -> Option<String> {
        let licence = self.licence.iter().map(|licence| format!("licence {licence}"));
        let said: Vec<String> = licence.chain(self.classes.iter().map(|class| String::from(class.word()))).collect();
        (!said.is_empty()).then(|| said.join(", "))
    }
}
