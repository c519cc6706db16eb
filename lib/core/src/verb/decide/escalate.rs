//! When a record that is not exact is not decided on: the margin is too small for what execution adds, nothing is known of
//! what it adds, the risk is declared to be high, or the calibration has expired (rows T53-T55, T73, T93).

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::{Made, shown};
use crate::digest::Digest;
use crate::instant::Instant;
use crate::manifest::decision::{Cause, Context, Doubt, Escalation, Inexact, Risk, Role};

/// Why the exact regime has to be asked about what was compared; `None` where it need not.
pub(super) fn escalation(context: &Context, made: &[Made<'_>], now: Instant) -> Option<Escalation> {
    let inexact = |made: &&Made<'_>| made.result.execution.0.is_some();
    let doubted: Vec<&Made<'_>> = made.iter().filter(inexact).collect();
    if doubted.is_empty() {
        return None;
    }
    // A constraint that is violated beyond doubt rejects, whatever else is in doubt.
    let violated = |made: &Made<'_>| made.is(Role::Constraint) && !made.comparison.of.satisfied;
    let beyond_doubt = made.iter().any(|made| violated(made) && too_close(made).is_none());
    let mut causes: Vec<Cause> = doubted.iter().filter(|_| !beyond_doubt).filter_map(|made| too_close(made)).collect();
    if context.objective.risk.0 == Some(Risk::High) {
        let message = "the objective declares that the risk is high, and the results are not exact";
        causes.push(whole(Doubt::Risk, message.into()));
    }
    let executions = || doubted.iter().filter_map(|made| made.result.execution.0.as_ref());
    let expired: BTreeSet<(Digest, Instant)> =
        executions().filter(|one| now >= one.expires).map(|one| (one.calibration, one.expires)).collect();
    for (calibration, expires) in expired {
        causes.push(whole(Doubt::Expired, format!("the calibration {calibration} has expired on {expires}")));
    }
    let plans: BTreeSet<Digest> = executions().flat_map(|one| &one.exact).copied().collect();
    (!causes.is_empty()).then(|| Escalation { causes, plans: plans.into_iter().collect() })
}

fn whole(code: Doubt, message: String) -> Cause {
    Cause { code, metric: None, slice: None, message }
}

/// What is wrong with the margin of one comparison: its value less its threshold, held against what execution adds.
fn too_close(made: &Made<'_>) -> Option<Cause> {
    let Inexact { regime, kappa, spreads, .. } = made.result.execution.0.as_ref()?;
    let (metric, slice) = (&made.metric.name, &made.metric.slice);
    let about = shown((metric, slice.as_deref()));
    let cause = |code, message| Some(Cause { code, metric: Some(metric.clone()), slice: slice.clone(), message });
    let Some(spread) = spreads.iter().find(|spread| spread.metric == *metric && spread.slice == *slice) else {
        let message = format!("how far {about} is off in the regime {regime} was not measured");
        return cause(Doubt::Unmeasured, message);
    };
    let comparison = &made.comparison.of;
    let margin = libm::fabs(comparison.value.get() - comparison.threshold.get());
    let reach = kappa.get() * spread.sigma.get();
    if margin > reach {
        return None;
    }
    let (value, threshold, sigma) = (comparison.value, comparison.threshold, spread.sigma);
    let message = format!("{about} is {value}, nearer to {threshold} than {kappa} times {sigma}, which execution adds");
    cause(Doubt::Margin, message)
}

/// An escalation in a sentence.
pub(super) fn sentence(escalation: &Escalation) -> String {
    let messages: Vec<&str> = escalation.causes.iter().map(|cause| cause.message.as_str()).collect();
    format!("the exact regime has to be asked: {}", messages.join("; "))
}
