//! settle
