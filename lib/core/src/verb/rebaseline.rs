//! The steps of a run, done again on another stack: a re-baselining keeps both and writes nothing anew (T78).

use alloc::collections::BTreeMap;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::fingerprint;
use crate::manifest::branch::Rebaseline;
use crate::manifest::replay::PinDifference;
use crate::manifest::run::{Run, Stack};
use crate::manifest::trace::Step;
use crate::verb::compare;

/// What a maintenance branch left from.
#[derive(Clone, Debug)]
pub struct Before {
    /// The stack of the state.
    pub stack: Stack,
    /// The environment of the run that came to it.
    pub environment: BTreeMap<String, String>,
    /// The steps of that run, from its first.
    pub steps: Vec<Step>,
}

/// What another stack made of the steps that `run` took after `step`; `None` when it is not known what it ran on.
pub fn rebaseline(before: &Before, run: &Run, (step, taken): (u64, &[Step])) -> Option<Rebaseline> {
    let stack = run.stack.as_ref()?;
    let from = usize::try_from(step).unwrap_or(usize::MAX).min(before.steps.len());
    let pairs = || before.steps[from..].iter().zip(taken);
    Some(Rebaseline {
        before: fingerprint::stack(&before.stack, &before.environment),
        after: fingerprint::stack(stack, &run.environment),
        differences: differences(before, stack, &run.environment),
        equal_steps: pairs().take_while(|(one, other)| one == other).count() as u64,
        steps: pairs().count() as u64,
    })
}

fn differences(before: &Before, stack: &Stack, environment: &BTreeMap<String, String>) -> Vec<PinDifference> {
    let mut found = compare::stacks(&before.stack, stack);
    let names: BTreeSet<&String> = before.environment.keys().chain(environment.keys()).collect();
    for name in names {
        let value = |of: &BTreeMap<String, String>| of.get(name).cloned().unwrap_or_else(|| "none".into());
        let (recorded, now) = (value(&before.environment), value(environment));
        if recorded != now {
            found.push(PinDifference { what: format!("environment {name}"), recorded, now });
        }
    }
    found
}
