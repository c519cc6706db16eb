//! What a regime that is not exact stands on: a calibration, or nothing yet.

use std::ffi::OsString;

use clap::Args;
use xt_cli::{Common, Error, Source, read_one};
use xt_core::fault::Faults;
use xt_core::field::Manifest as _;
use xt_core::manifest::calibration::Calibration;
use xt_core::manifest::plan::{Ground, Plan};
use xt_core::verb::regime;
use xt_store::Store;

/// What unlocks a regime that is not exact.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Grounds {
    /// The calibration that unlocks a regime that is not exact: a file or digest of an xt.calibration/1
    #[arg(long, value_name = "CALIBRATION")]
    calibration: Option<OsString>,
    /// The runs are evidence for a calibration of such a regime; none of them is ever frozen
    #[arg(long, conflicts_with = "calibration")]
    evidence: bool,
}

impl Grounds {
    /// The calibration, if there is one.
    pub(crate) fn calibration(&self, common: &Common) -> Result<Option<Calibration>, Error> {
        let lookup = |digest| Ok(Store::open(&common.store)?.get(digest)?);
        let Some(name) = &self.calibration else { return Ok(None) };
        Ok(Some(Calibration::decode(&read_one(&Source::from(name.as_os_str()), &lookup)?.value)?))
    }

    /// The ground that plans stand on.
    pub(crate) fn ground(&self, calibration: Option<&Calibration>) -> Ground {
        match calibration {
            Some(calibration) => regime::ground(calibration),
            None if self.evidence => Ground::Evidence {},
            None => Ground::None {},
        }
    }

    /// The same plans on their ground. The calibration goes into the store, where whoever runs them finds it.
    pub(crate) fn under(&self, plans: Vec<Plan>, common: &Common) -> Result<Vec<Plan>, Error> {
        let calibration = self.calibration(common)?;
        let ground = self.ground(calibration.as_ref());
        let plans: Vec<Plan> = match ground {
            Ground::None {} => plans,
            ground => plans.into_iter().map(|plan| regime::grounded(plan, ground.clone())).collect(),
        };
        check(&plans, calibration.as_ref(), common)?;
        Ok(plans)
    }
}

/// Refuses plans that their ground does not bear, and stores the calibration otherwise.
pub(crate) fn check(plans: &[Plan], calibration: Option<&Calibration>, common: &Common) -> Result<(), Error> {
    let mut faults = Faults::new();
    for plan in plans {
        regime::check_inside(plan, &mut faults);
        if let Some(calibration) = calibration {
            regime::check_cover(plan, calibration, common.now()?, None, &mut faults);
        }
    }
    faults.0.dedup();
    faults.or(())?;
    if let Some(calibration) = calibration {
        let store = Store::open(&common.store)?;
        let id = store.put_manifest(calibration)?;
        let scope = &calibration.scope;
        store.set_reference(
            &format!("calibrations/{}", id.hex()),
            id,
            &format!("{} for {}", scope.regime, scope.family),
        )?;
    }
    Ok(())
}
