//! Rules for storages and job classes, from a TOML file (`docs/guides/io.md`):
//!
//! ```toml
//! [default]
//! policy = "mlf"
//!
//! [storage."nfs1:/export"]
//! bandwidth = "900 MB/s"
//! concurrency = 4
//!
//! [class.night]
//! limit = "20 MB/s"
//! ```
//!
//! An error in the file is reported with its line before anything is served.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::num::{NonZeroU32, NonZeroU64};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use eyas_ioq::{
    ClassId, ClassQos, Config, ForeignParameter, MAX_SERVERS, POLICIES, Policy, PolicyParameters,
    ServerId, Servers, Striping,
};
use eyas_types::mistake::{line_at, plainly};
use eyas_types::units;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use thiserror::Error;
use toml::Spanned;

/// Default concurrency of an object store, which serves requests in parallel.
const OBJECT_STORE_CONCURRENCY: u32 = 64;

/// Greatest parameter `junction` of a policy: twice the size.
pub const MAX_JUNCTION_PERCENT: u32 = 100;

/// Least parameter `factor` of a policy.
pub const MIN_FACTOR: u32 = 2;

/// Reasons why rules cannot be loaded.
#[derive(Debug, Error)]
pub enum RulesError {
    /// The file cannot be read.
    #[error("cannot read the rules file {}: {error}", path.display())]
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
    /// The file is invalid.
    #[error("the rules file {}, line {line}: {why}", path.display())]
    Malformed {
        /// Path of the file.
        path: PathBuf,
        /// Number of the line, from 1.
        line: usize,
        /// The mistake.
        why: String,
    },
}

/// Rules for storages and job classes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rules {
    /// Rules for storages that have none of their own.
    default: StorageRules,
    /// Rules for single storages, by name.
    storages: BTreeMap<String, StorageRules>,
    classes: BTreeMap<ClassId, Class>,
}

/// Rules as they are written in the file, before parameters are given to their policies.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RulesFields {
    default: Option<Spanned<StorageRules>>,
    #[serde(default, rename = "storage")]
    storages: BTreeMap<String, Spanned<StorageRules>>,
    #[serde(default, rename = "class", deserialize_with = "classes")]
    classes: BTreeMap<ClassId, Class>,
}

/// Rules for a storage, as far as given. [`Config`] explains each.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StorageRules {
    /// Never bypass the storage.
    pub always: bool,
    /// Whether agents pass parts of its files on to each other; by default, only where the type of
    /// the file system permits it.
    pub share: Option<bool>,
    /// How files are striped over the servers of the storage.
    #[serde(deserialize_with = "stripe")]
    pub stripe: Option<Striping>,
    /// Policy that chooses the next run.
    #[serde(deserialize_with = "policy")]
    pub policy: Option<Policy>,
    /// Parameter of the policy, in microseconds.
    #[serde(deserialize_with = "patience")]
    pub patience: Option<u64>,
    /// Parameter of the policy, in percent.
    #[serde(deserialize_with = "junction")]
    pub junction: Option<u32>,
    /// Parameter of the policy, in bytes.
    #[serde(deserialize_with = "quantum")]
    pub quantum: Option<u64>,
    /// Parameter of the policy.
    #[serde(deserialize_with = "factor")]
    pub factor: Option<u32>,
    /// Largest run, in bytes.
    #[serde(deserialize_with = "bytes")]
    pub max_run: Option<u64>,
    /// Grants at a time; found by trial if not given.
    pub concurrency: Option<NonZeroU32>,
    /// Assumed bandwidth until it has been measured, in bytes a second.
    #[serde(deserialize_with = "rate")]
    pub bandwidth: Option<u64>,
    /// Limit on bytes a second.
    #[serde(deserialize_with = "rate")]
    pub bytes_per_s: Option<u64>,
    /// Limit on requests a second.
    pub requests_per_s: Option<NonZeroU32>,
    /// Anticipation window, in microseconds.
    #[serde(deserialize_with = "duration")]
    pub window: Option<u64>,
    /// Time between the predicted end of a grant and the next grant, in microseconds.
    #[serde(deserialize_with = "duration")]
    pub predict: Option<u64>,
    /// Lease of a grant, in microseconds.
    #[serde(deserialize_with = "duration")]
    pub lease: Option<u64>,
}

/// A job class.
#[derive(Clone, Debug, PartialEq)]
struct Class {
    name: String,
    qos: ClassQos,
}

/// A job class as it is written in the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClassFields {
    #[serde(default, deserialize_with = "rate")]
    reservation: Option<u64>,
    #[serde(default, deserialize_with = "rate")]
    limit: Option<u64>,
    weight: Option<NonZeroU32>,
}

impl Rules {
    /// Loads the rules from a file.
    ///
    /// # Errors
    /// If the file cannot be read or is invalid.
    pub fn load(path: &Path) -> Result<Rules, RulesError> {
        let text = fs::read_to_string(path)
            .map_err(|error| RulesError::Unreadable { path: path.into(), error })?;
        Rules::parse(&text).map_err(|(line, why)| RulesError::Malformed {
            path: path.into(),
            line,
            why,
        })
    }

    /// Rules from a text. The error is the first mistake, after the number of its line.
    fn parse(text: &str) -> Result<Rules, (usize, String)> {
        let fields = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            (line_at(text, at), plainly(error.message()))
        })?;
        let RulesFields { default, storages, classes } = fields;
        let settled = |rules: Spanned<StorageRules>, inherited| {
            let at = rules.span().start;
            rules
                .into_inner()
                .settled(inherited)
                .map_err(|error| (line_at(text, at), error.to_string()))
        };
        let usual = Config::default().policy;
        let default = default.map(|rules| settled(rules, usual)).transpose()?.unwrap_or_default();
        let inherited = default.policy.unwrap_or(usual);
        let storages = storages
            .into_iter()
            .map(|(name, rules)| Ok((name, settled(rules, inherited)?)))
            .collect::<Result<_, _>>()?;
        Ok(Rules { default, storages, classes })
    }

    /// The rules, with the settings of `by` in place of those of the table `default`.
    ///
    /// # Errors
    /// If a parameter does not belong to the policy.
    pub fn overruled(self, by: StorageRules) -> Result<Rules, ForeignParameter> {
        let before = self.default;
        let by = by.settled(before.policy.unwrap_or(Config::default().policy))?;
        let default = StorageRules {
            always: by.always || before.always,
            share: by.share.or(before.share),
            stripe: by.stripe.or(before.stripe),
            policy: by.policy.or(before.policy),
            max_run: by.max_run.or(before.max_run),
            concurrency: by.concurrency.or(before.concurrency),
            bandwidth: by.bandwidth.or(before.bandwidth),
            bytes_per_s: by.bytes_per_s.or(before.bytes_per_s),
            requests_per_s: by.requests_per_s.or(before.requests_per_s),
            window: by.window.or(before.window),
            predict: by.predict.or(before.predict),
            lease: by.lease.or(before.lease),
            ..StorageRules::default()
        };
        Ok(Rules { default, ..self })
    }

    /// Configuration of the storage with this name.
    pub(crate) fn of(&self, name: &str) -> Config {
        let classes = self.classes.iter().map(|(id, class)| (*id, class.qos)).collect();
        let mut config = Config { classes, ..Config::default() };
        self.default.apply(&mut config);
        if is_object_store(name) {
            config.budget.concurrency =
                config.budget.concurrency.max(Some(OBJECT_STORE_CONCURRENCY));
        }
        if let Some(named) = self.storages.get(name) {
            named.apply(&mut config);
        }
        config
    }

    /// Whether the storage with this name must never be bypassed: rates and classes can only be
    /// kept in order.
    pub(crate) fn must_order(&self, name: &str) -> bool {
        let treatments = [Some(&self.default), self.storages.get(name)];
        let has_rates =
            |said: &StorageRules| said.bytes_per_s.is_some() || said.requests_per_s.is_some();
        !self.classes.is_empty()
            || treatments.into_iter().flatten().any(|said| said.always || has_rates(said))
    }

    /// Whether agents pass parts of a storage's files on to each other, if a rule says so.
    pub(crate) fn shares(&self, name: &str) -> Option<bool> {
        let own = self.storages.get(name).and_then(|said| said.share);
        own.or(self.default.share)
    }

    /// Begins to order the requests to the storage with this name, as this server of the decider.
    /// `is_striped`: its files have layouts.
    pub(crate) fn serve(
        &self,
        servers: &mut Servers,
        server: ServerId,
        name: &str,
        is_striped: bool,
    ) {
        let config = self.of(name);
        match self.stripe_of(name) {
            None if is_striped => servers.serve_striped(server, &config, Striping::ONE_SERVER),
            // With a rule for one server, layouts are ignored.
            Some(striping) if striping.servers > NonZeroU32::MIN => {
                servers.serve_striped(server, &config, striping);
            }
            _ => servers.serve(server, config),
        }
    }

    /// How a storage's files are striped, if a rule says so.
    pub(crate) fn stripe_of(&self, name: &str) -> Option<Striping> {
        self.storages.get(name).and_then(|said| said.stripe).or(self.default.stripe)
    }

    /// Names of the classes.
    pub(crate) fn class_names(&self) -> BTreeMap<ClassId, String> {
        let named = self.classes.iter().map(|(id, class)| (*id, class.name.clone()));
        named.chain([(ClassId::default(), DEFAULT_CLASS.to_owned())]).collect()
    }
}

impl StorageRules {
    /// The rules with the parameters in their policy, which is the inherited one if they name none.
    fn settled(mut self, inherited: Policy) -> Result<StorageRules, ForeignParameter> {
        let parameters = PolicyParameters {
            patience_us: self.patience.take(),
            junction_percent: self.junction.take(),
            quantum_bytes: self.quantum.take(),
            factor: self.factor.take(),
        };
        if parameters != PolicyParameters::default() {
            self.policy = Some(self.policy.unwrap_or(inherited).with(parameters)?);
        }
        Ok(self)
    }

    fn apply(&self, config: &mut Config) {
        let StorageRules {
            always: _,
            share: _,
            stripe: _,
            policy,
            patience: _,
            junction: _,
            quantum: _,
            factor: _,
            max_run,
            concurrency,
            bandwidth,
            bytes_per_s,
            requests_per_s,
            window,
            predict,
            lease,
        } = *self;
        config.policy = policy.unwrap_or(config.policy);
        config.max_run_bytes = max_run.unwrap_or(config.max_run_bytes);
        config.bandwidth_bytes_per_s = bandwidth.unwrap_or(config.bandwidth_bytes_per_s);
        config.window_us = window.unwrap_or(config.window_us);
        config.margin_us = predict.or(config.margin_us);
        config.lease_us = lease.unwrap_or(config.lease_us);
        let budget = &mut config.budget;
        budget.concurrency = concurrency.map(NonZeroU32::get).or(budget.concurrency);
        budget.bytes_per_s = bytes_per_s.or(budget.bytes_per_s);
        budget.requests_per_s =
            requests_per_s.map(|per_s| per_s.get().into()).or(budget.requests_per_s);
    }
}

/// Name of the class of requests without a class.
pub(crate) const DEFAULT_CLASS: &str = "default";

/// Number of a class in messages: the 32-bit FNV-1a hash of its name.
pub fn class_id(name: &str) -> ClassId {
    if name == DEFAULT_CLASS {
        return ClassId::default();
    }
    let hash = name
        .bytes()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    ClassId(hash.max(1))
}

/// The policy with this name.
///
/// # Errors
/// If there is none; the error lists all policies.
pub fn parse_policy(name: &str) -> Result<Policy, UnknownPolicy> {
    Policy::named(name).ok_or_else(|| UnknownPolicy { name: name.to_owned() })
}

/// A policy that does not exist.
#[derive(Debug, Error)]
#[error("`{name}` is not a policy; use one of: {}", policy_names())]
pub struct UnknownPolicy {
    name: String,
}

fn policy_names() -> String {
    POLICIES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

/// The parameter `patience` of a policy, in microseconds.
///
/// # Errors
/// If the text is not a duration, or is 0.
pub fn parse_patience(text: &str) -> Result<u64, String> {
    match units::parse_duration_us(text).map_err(|error| error.to_string())? {
        0 => Err("`patience` must be longer than 0".into()),
        us => Ok(us),
    }
}

/// The parameter `quantum` of a policy, in bytes.
///
/// # Errors
/// If the text is not a size, or is 0.
pub fn parse_quantum(text: &str) -> Result<u64, String> {
    match units::parse_bytes(text).map_err(|error| error.to_string())? {
        0 => Err("`quantum` must be at least 1 byte".into()),
        bytes => Ok(bytes),
    }
}

/// How files are striped: the number of servers and the size of a stripe, such as `4, 1MiB`.
///
/// # Errors
/// If the text is something else.
pub fn parse_stripe(text: &str) -> Result<Striping, String> {
    let refused = || {
        format!(
            "`{text}` is not the number of servers, from 1 to {MAX_SERVERS}, and the size of a \
             stripe, as in `4, 1MiB`"
        )
    };
    let (servers, bytes) = text.split_once(',').ok_or_else(refused)?;
    let servers = servers.trim().parse().ok().and_then(NonZeroU32::new);
    let bytes = units::parse_bytes(bytes.trim()).ok().and_then(NonZeroU64::new);
    let (servers, stripe_bytes) = servers.zip(bytes).ok_or_else(refused)?;
    if servers.get() > MAX_SERVERS {
        return Err(refused());
    }
    Ok(Striping { servers, stripe_bytes })
}

fn is_object_store(name: &str) -> bool {
    ["s3://", "http://", "https://"].iter().any(|scheme| name.starts_with(scheme))
}

fn classes<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<ClassId, Class>, D::Error> {
    let mut classes = BTreeMap::new();
    for (name, fields) in BTreeMap::<String, ClassFields>::deserialize(from)? {
        let ClassFields { reservation: reservation_bytes_per_s, limit: limit_bytes_per_s, weight } =
            fields;
        if reservation_bytes_per_s
            .zip(limit_bytes_per_s)
            .is_some_and(|(reserved, limit)| reserved > limit)
        {
            return Err(D::Error::custom(format!(
                "the reservation of class `{name}` is higher than its limit"
            )));
        }
        let weight = weight.map_or(ClassQos::default().weight, NonZeroU32::get);
        let qos = ClassQos { reservation_bytes_per_s, limit_bytes_per_s, weight };
        if let Some(Class { name: other, .. }) =
            classes.insert(class_id(&name), Class { name: name.clone(), qos })
        {
            return Err(D::Error::custom(format!(
                "classes `{name}` and `{other}` have the same number: rename one"
            )));
        }
    }
    Ok(classes)
}

fn policy<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Policy>, D::Error> {
    parse_policy(&String::deserialize(from)?).map(Some).map_err(D::Error::custom)
}

fn stripe<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Striping>, D::Error> {
    parse_stripe(&String::deserialize(from)?).map(Some).map_err(D::Error::custom)
}

fn patience<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    parse_patience(&String::deserialize(from)?).map(Some).map_err(D::Error::custom)
}

fn quantum<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    parse_quantum(&String::deserialize(from)?).map(Some).map_err(D::Error::custom)
}

fn junction<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    whole_number(from, 0..=MAX_JUNCTION_PERCENT)
}

fn factor<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    whole_number(from, MIN_FACTOR..=u32::MAX)
}

fn whole_number<'de, D: Deserializer<'de>>(
    from: D,
    range: RangeInclusive<u32>,
) -> Result<Option<u32>, D::Error> {
    let number = i64::deserialize(from)?;
    let number = u32::try_from(number).ok().filter(|number| range.contains(number));
    let refused = || match *range.end() {
        u32::MAX => format!("write a whole number of at least {}", range.start()),
        most => format!("write a whole number from {} to {most}", range.start()),
    };
    number.map(Some).ok_or_else(|| D::Error::custom(refused()))
}

fn bytes<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    units::parse_bytes(&String::deserialize(from)?).map(Some).map_err(D::Error::custom)
}

fn rate<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    units::parse_rate(&String::deserialize(from)?).map(Some).map_err(D::Error::custom)
}

fn duration<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    units::parse_duration_us(&String::deserialize(from)?).map(Some).map_err(D::Error::custom)
}

#[cfg(test)]
mod tests {
    use eyas_ioq::{Mlf, Wsjf};

    use super::*;

    fn rules(text: &str) -> Rules {
        Rules::parse(text).unwrap()
    }

    #[test]
    fn rules_of_one_storage_override_the_default() {
        let rules = rules(
            r#"
            [default]
            policy = "mlf"
            max_run = "4MiB"
            window = "2ms"

            [storage."nfs1:/export"]
            policy = "fifo"
            concurrency = 4
            bandwidth = "900 MB/s"
            requests_per_s = 500
            bytes_per_s = "100 MB/s"
            predict = "200us"
            lease = "3s"
            "#,
        );
        let named = rules.of("nfs1:/export");
        assert_eq!(
            (named.policy, named.max_run_bytes, named.window_us),
            (Policy::Fifo, 4 << 20, 2_000)
        );
        assert_eq!((named.bandwidth_bytes_per_s, named.margin_us), (900_000_000, Some(200)));
        assert_eq!((named.lease_us, named.budget.concurrency), (3_000_000, Some(4)));
        assert_eq!(
            (named.budget.requests_per_s, named.budget.bytes_per_s),
            (Some(500), Some(100_000_000))
        );
        let other = rules.of("nfs2:/export");
        let policy = Policy::Mlf(Mlf::DEFAULT);
        assert_eq!(
            other,
            Config { policy, max_run_bytes: 4 << 20, window_us: 2_000, ..Config::default() }
        );
    }

    #[test]
    fn parameters_belong_to_the_policy_of_their_table_or_to_the_inherited_one() {
        let rules = rules(
            r#"
            [default]
            policy = "wsjf"
            patience = "2s"

            [storage.a]
            junction = 25

            [storage.b]
            policy = "mlf"
            quantum = "64KiB"
            factor = 4

            [storage.c]
            policy = "wsjf"
            "#,
        );
        let wsjf = Wsjf { patience_us: 2_000_000, ..Wsjf::DEFAULT };
        let policies = ["other", "a", "b", "c"].map(|name| rules.of(name).policy);
        let mlf = Policy::Mlf(Mlf { quantum_bytes: 64 << 10, factor: 4 });
        let a = Policy::Wsjf(Wsjf { junction_percent: 25, ..wsjf });
        assert_eq!(policies, [Policy::Wsjf(wsjf), a, mlf, Policy::Wsjf(Wsjf::DEFAULT)]);
    }

    #[test]
    fn options_take_the_place_of_the_default_table() {
        let rules =
            rules("default.policy = 'wsjf'\ndefault.patience = '2s'\ndefault.window = '5ms'");
        let by = StorageRules { junction: Some(0), ..StorageRules::default() };
        let config = rules.clone().overruled(by).unwrap().of("nfs1:/export");
        let wsjf = Wsjf { patience_us: 2_000_000, junction_percent: 0, is_clamped: true };
        assert_eq!((config.policy, config.window_us), (Policy::Wsjf(wsjf), 5_000));
        let by = StorageRules { policy: Policy::named("mlf"), ..StorageRules::default() };
        let config = rules.clone().overruled(by).unwrap().of("nfs1:/export");
        assert_eq!(config.policy, Policy::Mlf(Mlf::DEFAULT));
        let by = StorageRules { quantum: Some(1), ..StorageRules::default() };
        let refused = rules.overruled(by).unwrap_err().to_string();
        assert!(
            refused.starts_with("`quantum` is not a parameter of the policy wsjf"),
            "{refused}"
        );
    }

    #[test]
    fn a_storage_has_as_many_servers_as_its_rule_says() {
        let rules = rules(
            "default.stripe = '2, 1MiB'\nstorage.three.stripe = '3,64KiB'\n\
             storage.one.stripe = '1, 1MiB'",
        );
        for (name, count) in [("three", 3), ("other", 2), ("one", 1)] {
            for has_layouts in [false, true] {
                let mut servers = Servers::new();
                rules.serve(&mut servers, ServerId(0), name, has_layouts);
                assert_eq!(servers.stats(ServerId(0)).len(), count, "{name}");
                assert_eq!(servers.is_striped(ServerId(0)), count > 1, "{name}");
            }
        }
        for has_layouts in [false, true] {
            let mut servers = Servers::new();
            Rules::default().serve(&mut servers, ServerId(0), "without a rule", has_layouts);
            assert_eq!(servers.is_striped(ServerId(0)), has_layouts);
        }
        let by = StorageRules { stripe: parse_stripe("5, 1KiB").ok(), ..StorageRules::default() };
        let mut servers = Servers::new();
        rules.overruled(by).unwrap().serve(&mut servers, ServerId(0), "other", false);
        assert_eq!(servers.stats(ServerId(0)).len(), 5);
    }

    #[test]
    fn object_stores_are_not_serialised_unless_configured() {
        let rules = rules("default.concurrency = 2\nstorage.'s3://small'.concurrency = 3");
        let concurrency = |name| rules.of(name).budget.concurrency;
        assert_eq!(
            ["nfs1:/export", "s3://big", "s3://small"].map(concurrency),
            [2, OBJECT_STORE_CONCURRENCY, 3].map(Some)
        );
        assert_eq!(Rules::default().of("nfs1:/export").budget.concurrency, None, "found by trial");
    }

    #[test]
    fn classes_are_known_by_their_numbers() {
        let rules = rules(
            "[class.night]\nlimit = '20 MB/s'\n[class.urgent]\nreservation = '50 MB/s'\nweight = 5",
        );
        let config = rules.of("nfs1:/export");
        let limited = ClassQos { limit_bytes_per_s: Some(20_000_000), ..ClassQos::default() };
        assert_eq!(config.classes[&class_id("night")], limited);
        assert_eq!((config.classes[&class_id("urgent")].weight, config.classes.len()), (5, 2));
        assert_eq!(rules.class_names()[&class_id("night")], "night");
        // From the test vectors of the function's authors.
        assert_eq!(
            (class_id("foobar").0, class_id(DEFAULT_CLASS)),
            (0xbf9c_f968, ClassId::default())
        );
    }

    #[test]
    fn the_example_of_the_guide_is_valid() {
        let guide = include_str!("../../../docs/guides/io.md");
        let (_, text) = guide.split_once("```toml\n").expect("there are some");
        let rules = rules(text.split("```").next().expect("there is a first part"));
        assert_eq!((rules.storages.len(), rules.classes.len()), (3, 2));
    }

    #[test]
    fn errors_are_reported_with_their_line() {
        let cases = [
            (
                "[default]\npolicy = 'best'",
                "line 2",
                "`best` is not a policy; use one of: fifo, sjf",
            ),
            ("[default]\nspeed = 1", "line 2", "`speed` is not a key here: "),
            ("[storage.a]\nconcurrency = 0", "line 2", "a whole number of at least 1"),
            ("[storage.a]\nbytes_per_s = '0 MB/s'", "line 2", "is not a rate"),
            ("[storage.a]\nwindow = 5", "line 2", "write a text in quotes"),
            ("[default]\npolicy = 'wsjf'\npatience = '0s'", "line 3", "longer than 0"),
            ("[default]\nquantum = '0'", "line 2", "at least 1 byte"),
            ("[default]\nfactor = 1", "line 2", "a whole number of at least 2"),
            (
                "[default]\npolicy = 'wsjf'\njunction = 101",
                "line 3",
                "a whole number from 0 to 100",
            ),
            (
                "[default]\npolicy = 'wsjf'\n\n[storage.a]\nfactor = 3",
                "line 4",
                "`factor` is not a parameter of the policy wsjf: leave it out",
            ),
            ("[class.a]\nweight = 0", "line 2", "a whole number of at least 1"),
            (
                "[class.a]\nreservation = '2 MB/s'\nlimit = '1 MB/s'",
                "line 1",
                "the reservation of class `a` is higher",
            ),
            ("[class.costarring]\n[class.liquid]", "line 1", "have the same number"),
            ("garbage", "line 1", "key"),
            ("[storage.a]\nstripe = '1MiB'", "line 2", "as in `4, 1MiB`"),
            ("[storage.a]\nstripe = '0, 1MiB'", "line 2", "from 1 to 1024"),
            ("[storage.a]\nstripe = '2000, 1MiB'", "line 2", "from 1 to 1024"),
            ("[storage.a]\nstripe = '2, 0'", "line 2", "the size of a stripe"),
        ];
        for (text, line, why) in cases {
            let (at, said) = Rules::parse(text).unwrap_err();
            assert!(line == format!("line {at}") && said.contains(why), "{text}: {said}");
        }
    }
}
