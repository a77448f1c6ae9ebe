//! Inverses of functions that have no formula.

/// Halvings of an interval, after which only roundings are left.
const HALVINGS: usize = 100;

/// Where a rising function has the value `wanted` between `low` and `high`; none if it has not.
pub fn rising(
    function: impl Fn(f64) -> f64,
    wanted: f64,
    mut low: f64,
    mut high: f64,
) -> Option<f64> {
    if !(function(low) <= wanted && wanted <= function(high)) {
        return None;
    }
    for _ in 0..HALVINGS {
        let middle = 0.5 * (low + high);
        if middle <= low || middle >= high {
            break;
        }
        if function(middle) <= wanted { low = middle } else { high = middle }
    }
    Some(low)
}
