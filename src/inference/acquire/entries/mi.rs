//! The images on which members disagree most: the mutual information of label and parameters, H[p̄] − mean_k H[p_k], known as BALD
//! (Houlsby et al. 2011, arXiv 1112.5745; Gal et al. 2017, arXiv 1703.02910).

use anyhow::Context;

use crate::inference::acquire::{Entry, highest};
use crate::metrics::Uncertainty;

pub static ENTRY: Entry = Entry {
    key: "mi",
    about: "highest mutual information of label and members (BALD)",
    needs_members: true,
    needs_features: false,
    is_seeded: false,
    most: |_| None,
    choose: |pool, asked| {
        let Uncertainty { spread, .. } = Uncertainty::compute(&pool.predictions)?;
        let spread = spread.context("acquire by mi: one member has no mutual information")?;
        Ok(highest(&spread.mutual_information, asked.count))
    },
};
