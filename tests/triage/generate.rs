//! Documents for the property test: sound ones, then up to three mutations, most of them close to a border.

use super::json::J;
use super::slow;

/// SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).
pub struct Random(pub u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^ (word >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).unwrap()
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn pick<T: Clone>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())].clone()
    }

    fn name(&mut self) -> String {
        const FIRST: &[u8] = b"abcXYZ0159";
        const REST: &[u8] = b"abcXYZ0159._:/@-";
        let length = if self.chance(3) { 127 } else { self.below(9) };
        let mut name = String::from(char::from(self.pick(FIRST)));
        name.extend((0..length).map(|_| char::from(self.pick(REST))));
        name
    }

    /// A number between two positive ones, evenly on a logarithmic scale.
    fn between(&mut self, low: f64, high: f64) -> f64 {
        let share = f64::from(u32::try_from(self.below(1 << 30)).unwrap()) / f64::from(1 << 30);
        (low * (high / low).powf(share)).clamp(low, high)
    }
}

const STAGES: [&str; 5] = ["input", "forward", "loss", "backward", "optimizer"];
const OWNERS: [&str; 5] = ["data_owner", "model_owner", "objective_owner", "model_owner", "optimizer_owner"];
const SCOPE: [&str; 8] = [
    "run_id",
    "model_version",
    "dataset_version",
    "batch_id",
    "objective_version",
    "optimizer_version",
    "precision",
    "loss_scale_version",
];

/// A document: sealed before or after the mutations.
pub fn document(random: &mut Random) -> J {
    let mut document = sound(random);
    let early = random.chance(20);
    if early {
        seal(&mut document);
    }
    for _ in 0..random.pick(&[0, 0, 0, 1, 1, 1, 1, 2, 3]) {
        mutate(random, &mut document);
    }
    if !early {
        seal(&mut document);
    }
    if random.chance(4) {
        break_seal(random, &mut document);
    }
    document
}

fn seal(document: &mut J) {
    let (Some(contract), Some(evidence)) = (document.get("contract").cloned(), document.get("evidence").cloned())
    else {
        return;
    };
    let (Some(J::Str(id)), Some(J::List(stages))) = (evidence.get("evidence_id"), evidence.get("stages")) else {
        return;
    };
    let evidence = document.at("evidence");
    evidence.set("contract_content_id", J::Str(slow::contract_id(&contract)));
    evidence.set("evidence_content_id", J::Str(slow::evidence_id_of(&contract, id, stages)));
}

fn break_seal(random: &mut Random, document: &mut J) {
    let Some(evidence @ J::Map(_)) = document.get("evidence").cloned() else { return };
    let field = random.pick(&["contract_content_id", "evidence_content_id", "evidence_id"]);
    let Some(J::Str(text)) = evidence.get(field) else { return };
    let mut changed = text.clone();
    let last = if changed.pop() == Some('0') { '1' } else { '0' };
    changed.push(last);
    document.at("evidence").set(field, J::Str(changed));
}

/// A document that is sound, but that its elements may be too many in all.
fn sound(random: &mut Random) -> J {
    let drawn = random.between(1e-15, 1e-3);
    let resolution = random.pick(&[1e-15, 1e-12, 2.5e-7, 1e-3, drawn]);
    let inverse = 1.0 / resolution;
    let number = |random: &mut Random, whole: u32| {
        let drawn = random.between(resolution, inverse);
        let chosen = random.pick(&[
            J::Float(resolution),
            J::Float(inverse),
            J::Float(drawn),
            J::int(whole.into()),
            J::int(whole.into()),
        ]);
        let fits = chosen != J::int(whole.into()) || f64::from(whole) <= inverse;
        if fits { chosen } else { J::Float(1.0) }
    };
    let (limit, scale) = (number(random, 1_000_000_000), number(random, 1024));
    let any = random.below(10_000_000_000) as i128 + 1;
    let per_stage = random.pick(&[1, 8, 4096, 10_000_000_000, any]);
    let most = (5 * per_stage).min(20_000_000_000);
    let any = per_stage + random.below(usize::try_from(most - per_stage).unwrap() + 1) as i128;
    let total = random.pick(&[per_stage, most, most, any]);
    let mut contract = J::Map(vec![]);
    for name in SCOPE.iter().chain(&["contract_version"]) {
        contract.set(name, J::Str(random.name()));
    }
    for name in ["data_owner", "model_owner", "objective_owner", "optimizer_owner", "incident_owner"] {
        let name_of_it: String = random.name().chars().take(100).collect();
        contract.set(name, J::Str(format!("team:{}", if random.chance(4) { "" } else { &name_of_it })));
    }
    contract.set("step_id", J::int(random.pick(&[0, 1842, 1_000_000_000_000])));
    contract.set("loss_scale", scale);
    contract.set("minimum_numeric_resolution", J::Float(resolution));
    contract.set("maximum_absolute_finite", limit);
    contract.set("maximum_elements_per_stage", J::int(per_stage));
    contract.set("maximum_total_elements", J::int(total));
    contract.set("numeric_convention", J::str("binary64-summary-mixed-precision-v1"));
    let stages = stages(random, &contract, per_stage.min(total / 5).max(1));
    let evidence = J::Map(vec![("evidence_id".into(), J::Str(random.name())), ("stages".into(), J::List(stages))]);
    J::Map(vec![("evidence".into(), evidence), ("contract".into(), contract)])
}

fn stages(random: &mut Random, contract: &J, most: i128) -> Vec<J> {
    let first = random.below(7);
    let not_run = if random.chance(50) { first + 1 + random.below(4) } else { 5 };
    let number = |name: &str| match contract.get(name) {
        Some(J::Float(value)) => *value,
        Some(J::Int(digits)) => digits.parse().unwrap(),
        other => panic!("{name}: {other:?}"),
    };
    let (least, limit) = (number("minimum_numeric_resolution"), number("maximum_absolute_finite"));
    let build = |order: usize| {
        let runs = order < not_run;
        let checked = if runs { random.below(usize::try_from(most).unwrap()) as i128 + 1 } else { 0 };
        let bad = order == first || (order > first && runs && random.chance(50));
        let other = if bad { random.below(usize::try_from(checked).unwrap()) as i128 + 1 } else { 0 };
        let drawn = random.between(least, limit);
        let whole = if limit >= 7.0 { J::int(7) } else { J::int(0) };
        let zero = random.pick(&[J::Float(0.0), J::int(0), J::Float(-0.0)]);
        let some = random.pick(&[zero.clone(), J::Float(least), J::Float(limit), J::Float(drawn), whole]);
        let mut stage = J::Map(vec![]);
        for name in SCOPE.iter().chain(&["step_id", "loss_scale"]) {
            stage.set(name, contract.get(name).cloned().unwrap());
        }
        stage.set("telemetry_id", J::Str(format!("t{order}-{}", &random.name()[..1])));
        stage.set("tensor_set_id", J::Str(format!("s{order}-{}", &random.name()[..1])));
        stage.set("evidence_source_id", J::Str(random.name()));
        stage.set("stage", J::str(STAGES[order]));
        stage.set("stage_order", J::int(order as i128));
        stage.set("state", J::str(if runs { "OBSERVED" } else { "NOT_RUN" }));
        stage.set("checked_elements", J::int(checked));
        stage.set("finite_elements", J::int(checked - other));
        stage.set("nonfinite_elements", J::int(other));
        stage.set("maximum_absolute_finite", if runs { some } else { zero });
        stage.set("owner", contract.get(OWNERS[order]).cloned().unwrap());
        stage
    };
    (0..5).map(build).collect()
}

fn mutate(random: &mut Random, document: &mut J) {
    let strange = strange(random);
    let (order, other) = (random.below(5), random.below(5));
    match random.below(16) {
        0 => return contract_border(random, document.at("contract")),
        1 => {
            let field = random_field(random, document.at("contract"));
            return document.at("contract").set(&field, strange);
        }
        2 if random.chance(50) => {
            let field = random_field(random, document.at("contract"));
            return document.at("contract").remove(&field);
        }
        2 => return document.at("contract").set("extra", strange),
        3 => {
            let field = random_field(random, document.at("evidence"));
            return match random.below(4) {
                0 => document.at("evidence").remove(&field),
                1 => document.at("evidence").set("extra", strange),
                _ => document.at("evidence").set(&field, strange),
            };
        }
        4 => {
            let owner = random.pick(&OWNERS);
            return document.at("contract").set(owner, J::str("team:other"));
        }
        5 if random.chance(20) => {
            let key = random.pick(&["contract", "evidence", "extra"]);
            return document.set(key, strange);
        }
        _ => {}
    }
    let contract = document.get("contract").cloned().unwrap_or(J::Null);
    let Some(J::Map(_)) = document.get("evidence") else { return };
    let Some(J::List(_)) = document.get("evidence").and_then(|evidence| evidence.get("stages")) else { return };
    let stages = document.at("evidence").at("stages").items();
    if stages.len() != 5 || stages.iter().any(|stage| !matches!(stage, J::Map(_))) {
        return;
    }
    let from = stages[other].clone();
    match random.below(13) {
        0 => stages.swap(order, other),
        1 => stages.truncate(order),
        2 => stages.push(from),
        3 => stages[order] = strange,
        4 => {
            let field = random.pick(&["telemetry_id", "tensor_set_id"]);
            stages[order].set(field, from.get(field).cloned().unwrap_or(J::Null));
        }
        5 => {
            let field = random_field(random, &stages[order]);
            stages[order].set(&field, strange);
        }
        6 => {
            let field = random_field(random, &stages[order]);
            stages[order].remove(&field);
        }
        7 => stages[order].set("extra", strange),
        8 => {
            let field = random.pick(&SCOPE);
            stages[order].set(field, J::str("other"));
        }
        9 => {
            let owner = random.pick(&["team:other", "other", "team:"]);
            stages[order].set("owner", J::str(owner));
        }
        _ => stage_border(random, &mut stages[order], &contract),
    }
}

fn random_field(random: &mut Random, object: &J) -> String {
    match object {
        J::Map(members) if !members.is_empty() => random.pick(members).0,
        _ => "none".into(),
    }
}

fn number(object: &J, name: &str) -> f64 {
    match object.get(name) {
        Some(J::Float(value)) => *value,
        Some(J::Int(digits)) => digits.parse().unwrap(),
        _ => 1.0,
    }
}

/// A border that lies beyond all numbers has no text; the largest number stands for it.
fn finite(value: f64) -> J {
    J::Float(if value.is_finite() { value } else { f64::MAX })
}

/// Whole part of a number that a double holds exactly.
fn whole(value: f64) -> i128 {
    format!("{value:.0}").parse().unwrap_or(1)
}

fn contract_border(random: &mut Random, contract: &mut J) {
    if !matches!(contract, J::Map(_)) {
        return;
    }
    let resolution = number(contract, "minimum_numeric_resolution");
    let per_stage = whole(number(contract, "maximum_elements_per_stage"));
    let inverse = 1.0 / resolution;
    match random.below(6) {
        0 => contract.set("step_id", J::int(random.pick(&[-1, 0, 1_000_000_000_000, 1_000_000_000_001]))),
        1 => {
            let stage = random.pick(&[0, 1, 10_000_000_000, 10_000_000_001]);
            contract.set("maximum_elements_per_stage", J::int(stage));
        }
        2 => {
            let total = random.pick(&[
                per_stage - 1,
                per_stage,
                5 * per_stage,
                5 * per_stage + 1,
                20_000_000_000,
                20_000_000_001,
            ]);
            contract.set("maximum_total_elements", J::int(total));
        }
        3 => {
            let borders = [1e-15, 1e-15_f64.next_down(), 1e-3, 1e-3_f64.next_up(), 0.0, -1e-12];
            contract.set("minimum_numeric_resolution", finite(random.pick(&borders)));
        }
        _ => {
            let borders = [resolution, resolution.next_down(), inverse, inverse.next_up(), 0.0, -1.0, f64::MAX];
            let field = random.pick(&["maximum_absolute_finite", "loss_scale"]);
            contract.set(field, finite(random.pick(&borders)));
        }
    }
}

fn stage_border(random: &mut Random, stage: &mut J, contract: &J) {
    let (least, limit) = (number(contract, "minimum_numeric_resolution"), number(contract, "maximum_absolute_finite"));
    let per_stage = whole(number(contract, "maximum_elements_per_stage"));
    let checked = whole(number(stage, "checked_elements"));
    let other = whole(number(stage, "nonfinite_elements"));
    match random.below(9) {
        0 => {
            let borders = [least, least.next_down(), limit, limit.next_up(), -5e-324, -0.0, 5e-324];
            stage.set("maximum_absolute_finite", finite(random.pick(&borders)));
        }
        1 => {
            let count = random.pick(&[per_stage, per_stage + 1, 10_000_000_000, 10_000_000_001, 0]);
            stage.set("checked_elements", J::int(count));
            stage.set("finite_elements", J::int((count - other).max(0)));
        }
        2 => stage.set("checked_elements", J::int(checked + random.pick(&[-1, 1]))),
        3 => stage.set("nonfinite_elements", J::int(other + random.pick(&[-1, 1]))),
        4 => {
            stage.set("nonfinite_elements", J::int(0));
            stage.set("finite_elements", J::int(checked));
        }
        5 => {
            stage.set("state", J::str("NOT_RUN"));
            if random.chance(70) {
                for field in ["checked_elements", "finite_elements", "nonfinite_elements", "maximum_absolute_finite"] {
                    stage.set(field, J::int(0));
                }
            }
        }
        6 => {
            let name = random.pick(&["input", "loss", "Input", "optimiser", "OBSERVED"]);
            stage.set(random.pick(&["stage", "state"]), J::str(name));
        }
        7 => {
            let borders = [
                finite(number(stage, "loss_scale")),
                J::int(whole(number(stage, "loss_scale"))),
                J::Float(0.0),
                J::int(1),
            ];
            stage.set("loss_scale", random.pick(&borders));
        }
        _ => {
            let (field, value) = (random.pick(&["stage_order", "step_id"]), random.pick(&[-1, 0, 1, 4, 5, 1842]));
            stage.set(field, J::int(value));
        }
    }
}

/// A value of a kind or form that seldom fits.
fn strange(random: &mut Random) -> J {
    let texts = ["", "é", "x y", " x", ".x", "x\n", "team:", "team:x", "A", "OBSERVED", "input"];
    let long = random.pick(&[128, 129]);
    let text = J::str(random.pick(&texts));
    random.pick(&[
        J::Null,
        J::Bool(true),
        J::Bool(false),
        J::int(0),
        J::int(5),
        J::int(-1),
        J::Int("18446744073709551616".into()),
        J::Int("1".to_string() + &"0".repeat(400)),
        J::Float(1.0),
        J::Float(-0.0),
        J::Float(1e308),
        J::Float(5e-324),
        J::Str("a".repeat(long)),
        J::List(vec![J::int(1)]),
        J::Map(vec![]),
        text.clone(),
        text.clone(),
        text,
    ])
}
