//! Match expressions: CEL over the attributes of tasks and executors.

use eyas_matching::{accept, terms};
use eyas_types::matching::{Attribute, AttributeType, Expression, Fact, Facts, Labels};

/// Values that are at the ends of their types.
struct Extremes(Labels);

impl Facts for Extremes {
    fn fact(&self, attribute: Attribute) -> Fact<'_> {
        match attribute.kind() {
            AttributeType::Whole => Fact::Whole(u64::MAX),
            AttributeType::Fraction => Fact::Fraction(f64::MIN_POSITIVE),
            AttributeType::Text => Fact::Text("é"),
            AttributeType::Labels => Fact::Labels(&self.0),
        }
    }
}

/// An expression as requirements, as rank, and as what an executor accepts.
pub(crate) fn expressions(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    let facts = Extremes([("rack".into(), "r1".into())].into_iter().collect());
    let holds = |part: &dyn Expression| {
        let _ = part.holds(&facts);
        assert!(text.contains(part.text()), "a part is as it was written");
    };
    if let Ok(Some(terms)) = terms(Some(text), None) {
        terms.requirements.iter().for_each(|part| holds(&**part));
    }
    if let Ok(Some(terms)) = terms(None, Some(text)) {
        let rank = terms.rank.as_ref().expect("there is a rank");
        assert!(
            rank.number(&facts).is_ok_and(|number| !number.is_nan())
                || rank.number(&facts).is_err()
        );
    }
    if let Ok(parts) = accept(text) {
        parts.iter().for_each(|part| holds(&**part));
    }
}
