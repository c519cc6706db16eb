//! Whether a run stops before its last step, by its training losses alone: so that whoever has the trace comes to the same
//! answer as the trainer, and a run that was restored to the same as one that was not.

use alloc::format;
use alloc::string::String;

use crate::manifest::candidate::Early;
use crate::manifest::plan::Plan;
use crate::manifest::run::{StopReason, Stopped};
use crate::number::Finite;

/// More looks than this without an improvement are not counted: no patience is longer.
const MOST_WAITED: f32 = 1_000_000.0;

/// What is remembered of the losses so far. All of it is small whole numbers and sums of binary32, which a row of a state
/// holds exactly; sums are made in the order of the steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Looks {
    /// Steps since the last look.
    pub count: f32,
    /// Sum of their losses.
    pub sum: f32,
    /// Mean of the last look.
    pub mean: f32,
    /// Looks so far: 0 before the first, 1 behind it.
    pub looked: f32,
    /// Least mean that was an improvement.
    pub best: f32,
    /// Looks in a row that were none.
    pub waited: f32,
    /// Why the run stopped: 0 while it goes on, 1 for the target, 2 for the patience, 3 for the limit.
    pub stopped: f32,
}

impl Looks {
    /// Before the first step.
    pub const NONE: Self = Self { count: 0.0, sum: 0.0, mean: 0.0, looked: 0.0, best: 0.0, waited: 0.0, stopped: 0.0 };

    /// Every value by name, sorted. Taken apart without `..`: a new field does not compile until someone decides whether it
    /// is remembered.
    pub const fn named(&self) -> [(&'static str, f32); 7] {
        let Self { count, sum, mean, looked, best, waited, stopped } = *self;
        [
            ("best", best),
            ("count", count),
            ("looked", looked),
            ("mean", mean),
            ("stopped", stopped),
            ("sum", sum),
            ("waited", waited),
        ]
    }

    /// What was taken apart by [`Self::named`], in the same order.
    pub const fn of([best, count, looked, mean, stopped, sum, waited]: [f32; 7]) -> Self {
        Self { count, sum, mean, looked, best, waited, stopped }
    }

    /// Takes in the loss of the next step. `acts` says whether the run may stop there; a branch goes on to its horizon.
    pub fn take_in(&mut self, rule: &Early, loss: f32, acts: bool) {
        let Early::TrainingLoss { window, target, patience, minimum_improvement, limit } = rule else { return };
        #[expect(clippy::cast_precision_loss, reason = "windows are at most a million steps")]
        let window = *window as f32;
        self.count += 1.0;
        self.sum += loss;
        if self.count < window {
            return;
        }
        (self.mean, self.count, self.sum) = (self.sum / window, 0.0, 0.0);
        let mean = f64::from(self.mean);
        // What is no number is no improvement.
        if !mean.is_nan() && (self.looked == 0.0 || mean < f64::from(self.best) - minimum_improvement.get()) {
            (self.looked, self.best, self.waited) = (1.0, self.mean, 0.0);
        } else {
            self.waited = (self.waited + 1.0).min(MOST_WAITED);
        }
        if !acts {
            return;
        }
        #[expect(clippy::cast_precision_loss, reason = "a patience is at most a million looks")]
        let waited_out = |patience: u64| self.waited >= patience as f32;
        if limit.is_some_and(|limit| mean > limit.get()) {
            self.stopped = 3.0;
        } else if target.is_some_and(|target| mean <= target.get()) {
            self.stopped = 1.0;
        } else if patience.is_some_and(waited_out) {
            self.stopped = 2.0;
        }
    }

    /// Why the run stops after the step that was taken in last; `None` while it goes on.
    pub fn stops(&self) -> Option<StopReason> {
        match self.stopped {
            1.0 => Some(StopReason::Target),
            2.0 => Some(StopReason::Patience),
            3.0 => Some(StopReason::Limit),
            _ => None,
        }
    }
}

/// Follows the losses of a trace, from its first line on.
#[derive(Clone, Debug)]
pub struct Follow {
    rule: Early,
    looks: Looks,
    /// The run may stop after steps above this; `None` for a branch, which goes on to its horizon.
    above: Option<u64>,
    stopped: Option<Stopped>,
}

impl Follow {
    /// Before the first line of a trace of `plan`.
    pub fn new(plan: &Plan) -> Self {
        let rule = plan.native().map_or(Early::None {}, |candidate| candidate.stops.early.clone());
        let above = plan.departure.as_ref().map_or(0, |departure| departure.step);
        Self { rule, looks: Looks::NONE, above: (!plan.is_branch()).then_some(above), stopped: None }
    }

    /// Takes in the next line. Lines behind the one at which the run stops change nothing.
    pub fn take_in(&mut self, step: u64, loss: f32) {
        if self.stopped.is_some() {
            return;
        }
        let acts = self.above.is_some_and(|above| step > above);
        self.looks.take_in(&self.rule, loss, acts);
        if let Some(reason) = self.looks.stops() {
            self.stopped = Some(Stopped { step, reason, mean: Finite::new(f64::from(self.looks.mean)) });
        }
    }

    /// Where the run stops and why, if the lines so far say so.
    pub const fn stopped(&self) -> Option<&Stopped> {
        self.stopped.as_ref()
    }

    /// The same as the end of a run that succeeds: one above its limit never does.
    pub fn ended(&self) -> Option<&Stopped> {
        self.stopped().filter(|stopped| stopped.reason != StopReason::Limit)
    }
}

/// Why, as a person reads it.
pub fn sentence(rule: &Early, reason: StopReason, mean: f32) -> String {
    let Early::TrainingLoss { window, target, patience, limit, .. } = rule else { return String::new() };
    let number = |number: &Option<Finite>| number.map_or_else(String::new, |number| format!(" {number}"));
    let of = format!("the mean training loss of the last {window} steps, {mean},");
    match reason {
        StopReason::Target => format!("{of} is at most the target{}", number(target)),
        StopReason::Limit => format!("{of} is above the limit{}", number(limit)),
        StopReason::Patience => {
            format!("{of} is the last of {} in a row that are no improvement", patience.unwrap_or_default())
        }
    }
}

/// The rule as a person reads it; `None` where there is none.
pub fn describe(rule: &Early) -> Option<String> {
    let Early::TrainingLoss { window, target, patience, minimum_improvement, limit } = rule else { return None };
    let ends = [
        target.map(|target| format!("at most {target}")),
        patience.map(|patience| {
            let better = if minimum_improvement.get() > 0.0 {
                format!("better by more than {minimum_improvement}")
            } else {
                "better".into()
            };
            format!("not {better} than the best {patience} times in a row")
        }),
        limit.map(|limit| format!("above {limit}, which holds the run")),
    ];
    let ends: alloc::vec::Vec<String> = ends.into_iter().flatten().collect();
    Some(format!("early when the mean training loss of {window} steps is {}", ends.join(", or ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn number(value: f64) -> Finite {
        Finite::new(value).unwrap_or(Finite::ZERO)
    }

    fn rule(window: u64, target: Option<f64>, patience: Option<u64>, minimum: f64, limit: Option<f64>) -> Early {
        Early::TrainingLoss {
            window,
            target: target.map(number),
            patience,
            minimum_improvement: number(minimum),
            limit: limit.map(number),
        }
    }

    /// The step at which these losses stop, and why.
    fn stop(rule: &Early, losses: &[f32]) -> Option<(usize, StopReason)> {
        let mut looks = Looks::NONE;
        losses.iter().enumerate().find_map(|(at, loss)| {
            looks.take_in(rule, *loss, true);
            looks.stops().map(|reason| (at + 1, reason))
        })
    }

    #[test]
    fn means_of_windows_are_looked_at_and_nothing_between() {
        let target = rule(2, Some(1.0), None, 0.0, None);
        assert_eq!(stop(&target, &[3.0, 0.5, 0.5, 1.5]), Some((4, StopReason::Target)));
        assert_eq!(stop(&target, &[3.0, 0.5, 0.5, 1.75, 0.1]), None, "a window that is not full is not looked at");
        assert_eq!(stop(&rule(1, None, None, 0.0, Some(2.0)), &[2.0, 2.5]), Some((2, StopReason::Limit)));
        assert_eq!(stop(&Early::None {}, &[0.0; 9]), None);
    }

    #[test]
    fn patience_counts_looks_in_a_row_that_do_not_improve_by_enough() {
        let patient = |minimum| rule(1, None, Some(2), minimum, None);
        assert_eq!(stop(&patient(0.0), &[5.0, 4.0, 4.0, 3.9, 3.9, 4.5]), Some((6, StopReason::Patience)));
        // An improvement of exactly the minimum is none, and small ones add up against the best one.
        assert_eq!(stop(&patient(0.5), &[5.0, 4.5, 4.6, 4.3]), Some((3, StopReason::Patience)));
        assert_eq!(stop(&patient(0.5), &[5.0, 4.75, 4.25, 4.0, 3.5]), None);
    }

    #[test]
    fn what_is_no_number_is_no_improvement_and_reaches_no_target() {
        let all = rule(1, Some(1.0), Some(3), 0.0, Some(9.0));
        assert_eq!(stop(&all, &[f32::NAN, f32::NAN, f32::NAN]), Some((3, StopReason::Patience)));
        assert_eq!(stop(&all, &[2.0, f32::INFINITY]), Some((2, StopReason::Limit)));
    }

    #[test]
    fn what_is_remembered_goes_through_its_values_and_the_rest_is_the_same() {
        let rule = rule(3, None, Some(2), 0.01, None);
        let losses: Vec<f32> = (0u8..40).map(|at| 2.0 / (1.0 + f32::from(at % 7))).collect();
        let whole = stop(&rule, &losses);
        assert!(whole.is_some());
        for cut in 1..losses.len() {
            let mut looks = Looks::NONE;
            let mut found = None;
            for (at, loss) in losses.iter().enumerate() {
                if at == cut {
                    looks = Looks::of(looks.named().map(|(_, value)| value));
                }
                looks.take_in(&rule, *loss, true);
                found = found.or(looks.stops().map(|reason| (at + 1, reason)));
            }
            assert_eq!(found, whole, "{cut}");
        }
        assert!(Looks::NONE.named().windows(2).all(|pair| pair[0].0 < pair[1].0));
    }

    #[test]
    fn a_run_that_may_not_stop_remembers_all_the_same() {
        let rule = rule(1, None, Some(1), 0.0, None);
        let mut looks = Looks::NONE;
        for loss in [1.0, 2.0, 3.0] {
            looks.take_in(&rule, loss, false);
        }
        assert_eq!((looks.stops(), looks.waited), (None, 2.0));
        looks.take_in(&rule, 4.0, true);
        assert_eq!(looks.stops(), Some(StopReason::Patience));
    }

    #[test]
    fn a_rule_and_its_end_are_told_in_words() {
        let rule = rule(5, Some(0.25), Some(3), 0.01, Some(40.0));
        let told = describe(&rule).unwrap_or_default();
        assert!(told.contains("of 5 steps") && told.contains("0.25") && told.contains("3 times"), "{told}");
        assert!(sentence(&rule, StopReason::Target, 0.125).ends_with("0.125, is at most the target 0.25"));
        assert_eq!(describe(&Early::None {}), None);
    }
}
