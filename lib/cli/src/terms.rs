//! Flags that declare licence and classes.

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use xt_core::left_out::LeftOut;
use xt_core::licence::Licence;
use xt_core::manifest::terms::{DataClass, Terms};

use crate::error::CliError;

/// What is declared of data or of a bundle.
#[derive(Args, Clone, Debug, Default)]
pub struct Declaration {
    /// Declare its licence, an SPDX expression such as CC-BY-4.0; LicenseRef-NAME for one that SPDX does not list
    #[arg(long, alias = "license", value_name = "SPDX", value_parser = Licence::declare)]
    licence: Option<Licence>,
    /// Declare its classes of data, separated by commas
    #[arg(long, value_name = "CLASS", value_delimiter = ',', value_parser = classes())]
    class: Vec<DataClass>,
}

fn classes() -> impl clap::builder::TypedValueParser<Value = DataClass> {
    let words = PossibleValuesParser::new(DataClass::ALL.iter().map(|class| class.word()));
    words.try_map(|word| DataClass::parse(&word).ok_or("no such class"))
}

impl Declaration {
    /// Whether nothing was declared.
    pub fn is_empty(&self) -> bool {
        self.licence.is_none() && self.class.is_empty()
    }

    /// As documents hold it.
    pub fn terms(&self) -> Result<LeftOut<Terms>, CliError> {
        if self.is_empty() {
            return Ok(LeftOut(None));
        }
        let terms = Terms::declare(self.licence.clone(), self.class.clone());
        Ok(LeftOut(Some(terms.map_err(|why| CliError::Usage(format!("--class: {why}")))?)))
    }
}
