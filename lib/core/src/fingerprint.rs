//! Versioned projections: which values make two things the same. Written out field by field, never the hash of a
//! struct, so that a field added later does not move an identity recorded earlier (X25, X26, X75).
