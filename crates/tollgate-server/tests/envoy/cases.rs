//! What the format of envoyproxy/ratelimit means, case by case.
//!
//! A line with `>` sends a request, several times after `5x`; the line below it is the answer, the
//! last one if there are several. `!` moves the clock, which starts 40 s before the next minute,
//! 2,800 s before the next hour and 6,400 s before the next day.

use std::time::Duration;

use crate::rls::{NO_RULES, Rls};
use crate::text;

struct Case {
    says: &'static str,
    descriptors: &'static str,
    script: &'static str,
}

const CASES: &[Case] = &[
    Case {
        says: "what no descriptor names is not limited",
        descriptors: "[{ key: a, rate_limit: { unit: day, requests_per_unit: 1 } }]",
        script: "
            > 5x hello=world
            OK | OK
            > other: a=b
            OK | OK",
    },
    Case {
        says: "a key and its value have their limit",
        descriptors: "[{ key: key1, value: foo, rate_limit: { unit: second, requests_per_unit: 50 } }]",
        script: "
            > key1=foo
            OK | OK 49 of 50/SECOND in 1s
            > key1=bar
            OK | OK",
    },
    Case {
        says: "each value of a key without a value counts on its own",
        descriptors: "[{ key: key2, rate_limit: { unit: minute, requests_per_unit: 20 } }]",
        script: "
            > key2=a
            OK | OK 19 of 20/MINUTE in 40s
            > 18x key2=a
            OK | OK 1 of 20/MINUTE in 40s
            > key2=a
            OK | OK 0 of 20/MINUTE in 40s
            > 5x key2=a
            OVER_LIMIT | OVER 0 of 20/MINUTE in 40s
            > key2=b
            OK | OK 19 of 20/MINUTE in 40s",
    },
    Case {
        says: "a window ends with its unit and the next one is whole",
        descriptors: "[{ key: a, rate_limit: { unit: minute, requests_per_unit: 2 } }]",
        script: "
            > 3x a=1
            OVER_LIMIT | OVER 0 of 2/MINUTE in 40s
            ! 39999
            > a=1
            OVER_LIMIT | OVER 0 of 2/MINUTE in 1s
            ! 1
            > a=1
            OK | OK 1 of 2/MINUTE in 60s",
    },
    Case {
        says: "the time until a window's end falls",
        descriptors: "[{ key: key4, rate_limit: { unit: day, requests_per_unit: 20 } }]",
        script: "
            > key4=a
            OK | OK 19 of 20/DAY in 6400s
            ! 2000
            > key4=a
            OK | OK 18 of 20/DAY in 6398s",
    },
    Case {
        says: "hours, weeks, months of 30 days and years of 365 days are units, in any case",
        descriptors: "
            - { key: hour, rate_limit: { unit: HOUR, requests_per_unit: 5 } }
            - { key: week, rate_limit: { unit: Week, requests_per_unit: 5 } }
            - { key: month, rate_limit: { unit: month, requests_per_unit: 5 } }
            - { key: year, rate_limit: { unit: year, requests_per_unit: 5 } }",
        script: "
            > hour=a + week=a + month=a + year=a
            OK | OK 4 of 5/HOUR in 2800s + OK 4 of 5/WEEK in 92800s + OK 4 of 5/MONTH in 352000s + OK 4 of 5/YEAR in 2944000s",
    },
    Case {
        says: "a denied request spends in none of its limits",
        descriptors: "
            - { key: key2, rate_limit: { unit: minute, requests_per_unit: 20 } }
            - { key: key3, rate_limit: { unit: hour, requests_per_unit: 10 } }",
        script: "
            > 10x key2=a + key3=a
            OK | OK 10 of 20/MINUTE in 40s + OK 0 of 10/HOUR in 2800s
            > 5x key2=a + key3=a
            OVER_LIMIT | OK 10 of 20/MINUTE in 40s + OVER 0 of 10/HOUR in 2800s
            > key2=a
            OK | OK 9 of 20/MINUTE in 40s",
    },
    Case {
        says: "a limit of 0 lets nothing pass and no wait helps",
        descriptors: "[{ key: block, rate_limit: { unit: second, requests_per_unit: 0 } }]",
        script: "
            > block=a
            OVER_LIMIT | OVER 0 of 0/SECOND",
    },
    Case {
        says: "one value may be blocked while the others have a limit",
        descriptors: "
            - { key: remote_address, rate_limit: { unit: second, requests_per_unit: 10 } }
            - { key: remote_address, value: 50.0.0.5, rate_limit: { unit: second, requests_per_unit: 0 } }",
        script: "
            > remote_address=50.0.0.1
            OK | OK 9 of 10/SECOND in 1s
            > remote_address=50.0.0.5
            OVER_LIMIT | OVER 0 of 0/SECOND",
    },
    Case {
        says: "nested descriptors limit what the entries name together",
        descriptors: "
            - key: message_type
              value: marketing
              descriptors:
                - { key: to_number, rate_limit: { unit: day, requests_per_unit: 5 } }
            - { key: to_number, rate_limit: { unit: day, requests_per_unit: 100 } }",
        script: "
            > message_type=marketing,to_number=1
            OK | OK 4 of 5/DAY in 6400s
            > message_type=marketing,to_number=2
            OK | OK 4 of 5/DAY in 6400s
            > message_type=marketing,to_number=1 + to_number=1
            OK | OK 3 of 5/DAY in 6400s + OK 99 of 100/DAY in 6400s
            > message_type=news,to_number=1
            OK | OK",
    },
    Case {
        says: "a request with more entries than a limit has levels is not limited by it",
        descriptors: "[{ key: key, value: value, rate_limit: { unit: second, requests_per_unit: 300 } }]",
        script: "
            > key=value,subkey=subvalue
            OK | OK
            > key=value
            OK | OK 299 of 300/SECOND in 1s",
    },
    Case {
        says: "a request with fewer entries than a limit has levels is not limited by it",
        descriptors: "
            - key: key
              value: value
              descriptors:
                - { key: subkey, rate_limit: { unit: second, requests_per_unit: 300 } }",
        script: "
            > key=value
            OK | OK
            > key=value,subkey=a
            OK | OK 299 of 300/SECOND in 1s
            > subkey=a
            OK | OK",
    },
    Case {
        says: "every level may have a limit of its own",
        descriptors: "
            - key: tenant
              rate_limit: { unit: minute, requests_per_unit: 9 }
              descriptors:
                - { key: route, rate_limit: { unit: minute, requests_per_unit: 3 } }",
        script: "
            > tenant=a
            OK | OK 8 of 9/MINUTE in 40s
            > tenant=a,route=/
            OK | OK 2 of 3/MINUTE in 40s
            > tenant=a
            OK | OK 7 of 9/MINUTE in 40s",
    },
    Case {
        says: "the order of the entries counts",
        descriptors: "
            - key: a
              descriptors: [{ key: b, rate_limit: { unit: minute, requests_per_unit: 3 } }]",
        script: "
            > a=1,b=2
            OK | OK 2 of 3/MINUTE in 40s
            > b=2,a=1
            OK | OK",
    },
    Case {
        says: "a key may repeat on every level",
        descriptors: "
            - key: header
              value: a
              descriptors: [{ key: header, rate_limit: { unit: minute, requests_per_unit: 3 } }]",
        script: "
            > header=a,header=b
            OK | OK 2 of 3/MINUTE in 40s
            > header=b,header=a
            OK | OK",
    },
    Case {
        says: "a descriptor without a limit and without levels lets everything pass",
        descriptors: "
            - { key: path, value: /health }
            - { key: path, rate_limit: { unit: day, requests_per_unit: 0 } }",
        script: "
            > 3x path=/health
            OK | OK
            > path=/
            OVER_LIMIT | OVER 0 of 0/DAY",
    },
    Case {
        says: "the very value comes before a pattern and a pattern before any value",
        descriptors: "
            - { key: path, rate_limit: { unit: day, requests_per_unit: 1 } }
            - { key: path, value: /a*, rate_limit: { unit: day, requests_per_unit: 2 } }
            - { key: path, value: '*z', rate_limit: { unit: day, requests_per_unit: 3 } }
            - { key: path, value: /az, rate_limit: { unit: day, requests_per_unit: 4 } }",
        script: "
            > path=/az
            OK | OK 3 of 4/DAY in 6400s
            > path=/abz
            OK | OK 1 of 2/DAY in 6400s
            > path=/z
            OK | OK 2 of 3/DAY in 6400s
            > path=/b
            OK | OK 0 of 1/DAY in 6400s",
    },
    Case {
        says: "a choice on one level is not taken back on the next",
        descriptors: "
            - key: tenant
              value: a
              descriptors: [{ key: x, rate_limit: { unit: day, requests_per_unit: 1 } }]
            - key: tenant
              descriptors: [{ key: y, rate_limit: { unit: day, requests_per_unit: 2 } }]",
        script: "
            > tenant=a,y=1
            OK | OK
            > tenant=b,y=1
            OK | OK 1 of 2/DAY in 6400s",
    },
    Case {
        says: "a star stands for any run of characters, wherever it is",
        descriptors: "
            - { key: path, value: /v*/users/*/x, rate_limit: { unit: day, requests_per_unit: 9 } }",
        script: "
            > path=/v1/users/7/x
            OK | OK 8 of 9/DAY in 6400s
            > path=/v/users//x
            OK | OK 8 of 9/DAY in 6400s
            > path=/v1/users/7/y
            OK | OK",
    },
    Case {
        says: "each value of a pattern counts on its own",
        descriptors: "
            - { key: files, value: files/*, rate_limit: { unit: hour, requests_per_unit: 10 } }",
        script: "
            > 11x files=files/a.pdf
            OVER_LIMIT | OVER 0 of 10/HOUR in 2800s
            > files=files/b.csv
            OK | OK 9 of 10/HOUR in 2800s",
    },
    Case {
        says: "values share one count where the threshold is shared",
        descriptors: "
            - { key: files, value: files/*, share_threshold: true, rate_limit: { unit: hour, requests_per_unit: 10 } }",
        script: "
            > 10x files=files/a.pdf
            OK | OK 0 of 10/HOUR in 2800s
            > files=files/b.csv
            OVER_LIMIT | OVER 0 of 10/HOUR in 2800s",
    },
    Case {
        says: "a threshold is shared below the pattern too",
        descriptors: "
            - key: files
              value: files/*
              share_threshold: true
              descriptors: [{ key: user, rate_limit: { unit: hour, requests_per_unit: 2 } }]",
        script: "
            > files=files/a,user=1
            OK | OK 1 of 2/HOUR in 2800s
            > files=files/b,user=1
            OK | OK 0 of 2/HOUR in 2800s
            > files=files/c,user=2
            OK | OK 1 of 2/HOUR in 2800s",
    },
    Case {
        says: "an empty value is a value of a key without one",
        descriptors: "[{ key: a, value: '', rate_limit: { unit: day, requests_per_unit: 2 } }]",
        script: "
            > a=
            OK | OK 1 of 2/DAY in 6400s
            > a=x
            OK | OK 1 of 2/DAY in 6400s",
    },
    Case {
        says: "keys and values that look alike when joined stay apart",
        descriptors: "
            - { key: a, rate_limit: { unit: day, requests_per_unit: 2 } }
            - { key: a_b, rate_limit: { unit: day, requests_per_unit: 2 } }",
        script: "
            > a=b_c
            OK | OK 1 of 2/DAY in 6400s
            > a_b=c
            OK | OK 1 of 2/DAY in 6400s",
    },
    Case {
        says: "an unlimited descriptor has as many hits left as a number holds",
        descriptors: "
            - { key: ldap, rate_limit: { unlimited: true } }
            - { key: azure, rate_limit: { unit: minute, requests_per_unit: 100 } }",
        script: "
            > ldap=a + azure=a
            OK | OK unlimited + OK 99 of 100/MINUTE in 40s",
    },
    Case {
        says: "a limit that is replaced does not count",
        descriptors: "
            - key: key_1
              value: v1
              descriptors:
                - { key: user, value: u, rate_limit: { name: specific, unit: second, requests_per_unit: 5 } }
            - key: key_2
              value: v2
              descriptors:
                - { key: user, value: u, rate_limit: { replaces: [{ name: specific }], unit: second, requests_per_unit: 10 } }",
        script: "
            > key_1=v1,user=u + key_2=v2,user=u
            OK | OK + OK 9 of 10/SECOND in 1s
            > key_1=v1,user=u
            OK | OK 4 of 5/SECOND specific in 1s",
    },
    Case {
        says: "a limit may replace a ban",
        descriptors: "
            - key: source
              descriptors:
                - { key: bar, value: banned, rate_limit: { name: ban, unit: minute, requests_per_unit: 0 } }
            - { key: destination, value: override, rate_limit: { replaces: [{ name: ban }], unit: minute, requests_per_unit: 2 } }",
        script: "
            > source=p,bar=banned
            OVER_LIMIT | OVER 0 of 0/MINUTE ban
            > 2x source=p,bar=banned + destination=override
            OK | OK + OK 0 of 2/MINUTE in 40s
            > source=p,bar=banned + destination=override
            OVER_LIMIT | OK + OVER 0 of 2/MINUTE in 40s",
    },
    Case {
        says: "a limit may replace several, and an unlimited one may replace too",
        descriptors: "
            - { key: a, rate_limit: { name: one, unit: minute, requests_per_unit: 1 } }
            - { key: b, rate_limit: { name: two, unit: minute, requests_per_unit: 1 } }
            - { key: category, value: account, rate_limit: { replaces: [{ name: one }, { name: two }], unit: minute, requests_per_unit: 4 } }
            - { key: category, value: free, rate_limit: { replaces: [{ name: one }], unlimited: true } }",
        script: "
            > 4x a=1 + b=1 + category=account
            OK | OK + OK + OK 0 of 4/MINUTE in 40s
            > a=1 + b=1 + category=account
            OVER_LIMIT | OK + OK + OVER 0 of 4/MINUTE in 40s
            > a=1 + b=1 + category=free
            OK | OK + OK 0 of 1/MINUTE two in 40s + OK unlimited",
    },
    Case {
        says: "a limit in shadow counts and never denies",
        descriptors: "
            - { key: baz, value: shady, shadow_mode: true, rate_limit: { unit: minute, requests_per_unit: 3 } }
            - { key: baz, value: not-so-shady, rate_limit: { unit: minute, requests_per_unit: 3 } }",
        script: "
            > 10x baz=shady
            OK | OK 0 of 3/MINUTE in 40s
            > 3x baz=not-so-shady
            OK | OK 0 of 3/MINUTE in 40s
            > baz=not-so-shady
            OVER_LIMIT | OVER 0 of 3/MINUTE in 40s
            > baz=shady + baz=not-so-shady
            OVER_LIMIT | OK 0 of 3/MINUTE in 40s + OVER 0 of 3/MINUTE in 40s",
    },
    Case {
        says: "limits in quota mode deny only when all of them are spent",
        descriptors: "
            - { key: service, value: s1, quota_mode: true, rate_limit: { unit: minute, requests_per_unit: 1 } }
            - { key: service, value: s2, quota_mode: true, rate_limit: { unit: minute, requests_per_unit: 2 } }",
        script: "
            > service=s1 + service=s2
            OK | OK 0 of 1/MINUTE in 40s + OK 1 of 2/MINUTE in 40s
            > service=s1 + service=s2
            OK | OVER 0 of 1/MINUTE in 40s + OK 0 of 2/MINUTE in 40s
            > service=s1 + service=s2
            OVER_LIMIT | OVER 0 of 1/MINUTE in 40s + OVER 0 of 2/MINUTE in 40s
            > service=s1
            OVER_LIMIT | OVER 0 of 1/MINUTE in 40s",
    },
    Case {
        says: "a quota in shadow is never spent, so the others never are all of them",
        descriptors: "
            - { key: q1, quota_mode: true, rate_limit: { unit: minute, requests_per_unit: 1 } }
            - { key: q2, quota_mode: true, shadow_mode: true, rate_limit: { unit: minute, requests_per_unit: 1 } }",
        script: "
            > 3x q1=1 + q2=1
            OK | OVER 0 of 1/MINUTE in 40s + OK 0 of 1/MINUTE in 40s
            > q1=1
            OVER_LIMIT | OVER 0 of 1/MINUTE in 40s",
    },
    Case {
        says: "an ordinary limit denies beside one in quota mode, and gives that one its hit back",
        descriptors: "
            - { key: a, rate_limit: { unit: minute, requests_per_unit: 1 } }
            - { key: q, quota_mode: true, rate_limit: { unit: minute, requests_per_unit: 5 } }",
        script: "
            > a=1 + q=1
            OK | OK 0 of 1/MINUTE in 40s + OK 4 of 5/MINUTE in 40s
            > 3x a=1 + q=1
            OVER_LIMIT | OVER 0 of 1/MINUTE in 40s + OK 4 of 5/MINUTE in 40s
            > q=1 [hits 0]
            OK | OK 4 of 5/MINUTE in 40s",
    },
    Case {
        says: "spent quotas give an ordinary limit its hit back",
        descriptors: "
            - { key: a, rate_limit: { unit: minute, requests_per_unit: 9 } }
            - { key: q, quota_mode: true, rate_limit: { unit: minute, requests_per_unit: 1 } }",
        script: "
            > a=1 + q=1
            OK | OK 8 of 9/MINUTE in 40s + OK 0 of 1/MINUTE in 40s
            > 3x a=1 + q=1
            OVER_LIMIT | OK 8 of 9/MINUTE in 40s + OVER 0 of 1/MINUTE in 40s
            > a=1
            OK | OK 7 of 9/MINUTE in 40s",
    },
    Case {
        says: "a ban beside a quota takes nothing from the quota",
        descriptors: "
            - { key: a, rate_limit: { unit: minute, requests_per_unit: 0 } }
            - { key: q, quota_mode: true, rate_limit: { unit: minute, requests_per_unit: 5 } }",
        script: "
            > q=1
            OK | OK 4 of 5/MINUTE in 40s
            > 3x a=1 + q=1
            OVER_LIMIT | OVER 0 of 0/MINUTE + OK 4 of 5/MINUTE in 40s
            > q=1 [hits 0]
            OK | OK 4 of 5/MINUTE in 40s",
    },
    Case {
        says: "a limit that came with the request holds in place of the configured one",
        descriptors: "
            - { key: a, shadow_mode: true, rate_limit: { name: configured, unit: day, requests_per_unit: 1 } }",
        script: "
            > a=1 [limit 10 DAY]
            OK | OK 9 of 10/DAY in 6400s
            > a=1 [limit 42 HOUR]
            OK | OK 41 of 42/HOUR in 2800s
            > a=2 [limit 42 HOUR]
            OK | OK 41 of 42/HOUR in 2800s
            > 2x a=3 [limit 1 MINUTE]
            OVER_LIMIT | OVER 0 of 1/MINUTE in 40s
            > a=4 [limit 0 YEAR]
            OVER_LIMIT | OVER 0 of 0/YEAR
            > unknown=1 [limit 5 SECOND]
            OK | OK 4 of 5/SECOND in 1s
            > other: a=1 [limit 5 SECOND]
            OK | OK",
    },
    Case {
        says: "limits of different units that came with requests count apart for the same entries",
        descriptors: "[{ key: a, rate_limit: { unit: day, requests_per_unit: 1 } }]",
        script: "
            > 3x a=1 [limit 3 DAY]
            OK | OK 0 of 3/DAY in 6400s
            > a=1 [limit 100 SECOND]
            OK | OK 99 of 100/SECOND in 1s
            ! 1000
            > a=1 [limit 100 SECOND]
            OK | OK 99 of 100/SECOND in 1s
            > a=1 [limit 3 DAY]
            OVER_LIMIT | OVER 0 of 3/DAY in 6399s
            > a=1 [limit 3 DAY] + a=1 [limit 5 MINUTE]
            OVER_LIMIT | OVER 0 of 3/DAY in 6399s + OK 5 of 5/MINUTE in 0s
            > a=1 [limit 4 DAY]
            OK | OK 0 of 4/DAY in 6399s",
    },
    Case {
        says: "a request may add several hits, and 0 stands for 1",
        descriptors: "[{ key: a, rate_limit: { unit: minute, requests_per_unit: 20 } }]",
        script: "
            > a=1 hits 5
            OK | OK 15 of 20/MINUTE in 40s
            > a=1 hits 0
            OK | OK 14 of 20/MINUTE in 40s
            > a=1 hits 15
            OVER_LIMIT | OVER 14 of 20/MINUTE in 40s
            > a=1 hits 14
            OK | OK 0 of 20/MINUTE in 40s",
    },
    Case {
        says: "the hits of a descriptor come before those of the request",
        descriptors: "
            - { key: a, rate_limit: { unit: minute, requests_per_unit: 20 } }
            - { key: b, rate_limit: { unit: minute, requests_per_unit: 20 } }",
        script: "
            > a=1 [hits 3] + b=1 hits 5
            OK | OK 17 of 20/MINUTE in 40s + OK 15 of 20/MINUTE in 40s",
    },
    Case {
        says: "no hits only ask whether one more would pass",
        descriptors: "[{ key: a, rate_limit: { unit: minute, requests_per_unit: 1 } }]",
        script: "
            > 3x a=1 [hits 0]
            OK | OK 1 of 1/MINUTE in 0s
            > a=1
            OK | OK 0 of 1/MINUTE in 40s
            > 3x a=1 [hits 0]
            OVER_LIMIT | OVER 0 of 1/MINUTE in 40s",
    },
    Case {
        says: "tokens may be asked for before a response and counted after it",
        descriptors: "[{ key: model, rate_limit: { unit: minute, requests_per_unit: 3 } }]",
        script: "
            > model=m [hits 0]
            OK | OK 3 of 3/MINUTE in 0s
            > 3x model=m [hits 1]
            OK | OK 0 of 3/MINUTE in 40s
            > model=m [hits 0]
            OVER_LIMIT | OVER 0 of 3/MINUTE in 40s",
    },
    Case {
        says: "a look that is denied keeps the rest from spending",
        descriptors: "
            - { key: a, rate_limit: { unit: minute, requests_per_unit: 1 } }
            - { key: b, rate_limit: { unit: minute, requests_per_unit: 5 } }",
        script: "
            > a=1
            OK | OK 0 of 1/MINUTE in 40s
            > 3x a=1 [hits 0] + b=1
            OVER_LIMIT | OVER 0 of 1/MINUTE in 40s + OK 5 of 5/MINUTE in 0s
            > a=2 [hits 0] + b=1
            OK | OK 1 of 1/MINUTE in 0s + OK 4 of 5/MINUTE in 40s",
    },
    Case {
        says: "negative hits are given back, never beyond the limit, and never denied",
        descriptors: "[{ key: a, rate_limit: { unit: minute, requests_per_unit: 5 } }]",
        script: "
            > 6x a=1
            OVER_LIMIT | OVER 0 of 5/MINUTE in 40s
            > a=1 [hits 2] [refund]
            OK | OK 2 of 5/MINUTE in 40s
            > a=1 [hits 9] [refund]
            OK | OK 5 of 5/MINUTE in 0s
            > a=1 [refund]
            OK | OK 5 of 5/MINUTE in 0s",
    },
    Case {
        says: "a denied request gives nothing back",
        descriptors: "
            - { key: a, rate_limit: { unit: minute, requests_per_unit: 5 } }
            - { key: b, rate_limit: { unit: minute, requests_per_unit: 0 } }",
        script: "
            > a=1 hits 3
            OK | OK 2 of 5/MINUTE in 40s
            > a=1 [refund] + b=1
            OVER_LIMIT | OK 2 of 5/MINUTE in 40s + OVER 0 of 0/MINUTE
            > a=1 [refund] + c=1
            OK | OK 3 of 5/MINUTE in 40s + OK",
    },
    Case {
        says: "more hits than the limit can never pass and spend nothing",
        descriptors: "[{ key: a, rate_limit: { unit: minute, requests_per_unit: 5 } }]",
        script: "
            > a=1 hits 6
            OVER_LIMIT | OVER 5 of 5/MINUTE
            > a=1
            OK | OK 4 of 5/MINUTE in 40s",
    },
    Case {
        says: "one descriptor twice counts twice",
        descriptors: "[{ key: a, rate_limit: { unit: minute, requests_per_unit: 5 } }]",
        script: "
            > a=1 + a=1
            OK | OK 3 of 5/MINUTE in 40s + OK 3 of 5/MINUTE in 40s",
    },
    Case {
        says: "the name of a limit is reported",
        descriptors: "[{ key: a, rate_limit: { name: per-a, unit: minute, requests_per_unit: 5 } }]",
        script: "
            > a=1
            OK | OK 4 of 5/MINUTE per-a in 40s",
    },
    Case {
        says: "switches of the metrics change no decision",
        descriptors: "
            - { key: unspec, detailed_metric: true, value_to_metric: true, rate_limit: { unit: minute, requests_per_unit: 2 } }",
        script: "
            > 3x unspec=a
            OVER_LIMIT | OVER 0 of 2/MINUTE in 40s
            > unspec=b
            OK | OK 1 of 2/MINUTE in 40s",
    },
    Case {
        says: "a token bucket refills steadily and tells when the next hit passes",
        descriptors: "
            - { key: a, rate_limit: { unit: minute, requests_per_unit: 20, algorithm: token_bucket, burst: 5 } }",
        script: "
            > 5x a=1
            OK | OK 0 of 20/MINUTE in 15s
            > a=1
            OVER_LIMIT | OVER 0 of 20/MINUTE in 3s
            ! 2500
            > a=1
            OVER_LIMIT | OVER 0 of 20/MINUTE in 1s
            ! 500
            > a=1
            OK | OK 0 of 20/MINUTE in 15s",
    },
    Case {
        says: "a sliding window has no boundary",
        descriptors: "
            - { key: a, rate_limit: { unit: minute, requests_per_unit: 3, algorithm: sliding_window } }",
        script: "
            ! 39000
            > 3x a=1
            OK | OK 0 of 3/MINUTE in 61s
            ! 2000
            > a=1
            OVER_LIMIT | OVER 0 of 3/MINUTE in 59s",
    },
    Case {
        says: "a sliding log is exact",
        descriptors: "
            - { key: a, rate_limit: { unit: minute, requests_per_unit: 1, algorithm: sliding_log } }",
        script: "
            > a=1
            OK | OK 0 of 1/MINUTE in 60s
            ! 59999
            > a=1
            OVER_LIMIT | OVER 0 of 1/MINUTE in 1s
            ! 1
            > a=1
            OK | OK 0 of 1/MINUTE in 60s",
    },
];

#[tokio::test]
async fn every_case_is_answered_as_it_says() {
    for case in CASES {
        let file = format!("domain: d\ndescriptors: {}\n", case.descriptors);
        play(&Rls::start(NO_RULES, &[&file]).await, case.says, case.script).await;
    }
    assert!(CASES.len() >= 48, "{}", CASES.len());
}

#[tokio::test]
async fn the_switch_counts_as_envoyproxy_ratelimit_does() {
    let config = format!("envoy: {{ spend_on_denial: true }}\n{NO_RULES}");
    let file = "
domain: d
descriptors:
  - { key: key2, rate_limit: { unit: minute, requests_per_unit: 20 } }
  - { key: key3, rate_limit: { unit: hour, requests_per_unit: 10 } }
  - { key: ban, rate_limit: { unit: hour, requests_per_unit: 0 } }
  - { key: bucket, rate_limit: { unit: minute, requests_per_unit: 20, algorithm: token_bucket } }
  - { key: q1, quota_mode: true, rate_limit: { unit: minute, requests_per_unit: 1 } }
  - { key: q2, quota_mode: true, rate_limit: { unit: minute, requests_per_unit: 2 } }
";
    let rls = Rls::start(&config, &[file]).await;
    play(
        &rls,
        "a descriptor spends though another denies",
        "
        > 10x key2=a + key3=a
        OK | OK 10 of 20/MINUTE in 40s + OK 0 of 10/HOUR in 2800s
        > 5x key2=a + key3=a
        OVER_LIMIT | OK 5 of 20/MINUTE in 40s + OVER 0 of 10/HOUR in 2800s
        > 5x key2=a + ban=a
        OVER_LIMIT | OK 0 of 20/MINUTE in 40s + OVER 0 of 0/HOUR",
    )
    .await;
    play(
        &rls,
        "hits that do not fit take what is left",
        "
        > key3=b hits 7
        OK | OK 3 of 10/HOUR in 2800s
        > key3=b hits 5
        OVER_LIMIT | OVER 0 of 10/HOUR in 2800s
        > key3=b
        OVER_LIMIT | OVER 0 of 10/HOUR in 2800s
        > key3=c hits 11
        OVER_LIMIT | OVER 0 of 10/HOUR
        > key3=c
        OVER_LIMIT | OVER 0 of 10/HOUR in 2800s
        > bucket=a hits 18
        OK | OK 2 of 20/MINUTE in 54s
        > bucket=a hits 3
        OVER_LIMIT | OVER 0 of 20/MINUTE in 9s",
    )
    .await;
    play(
        &rls,
        "limits in quota mode deny only when all of them are spent",
        "
        > 2x q1=a + q2=a
        OK | OVER 0 of 1/MINUTE in 40s + OK 0 of 2/MINUTE in 40s
        > q1=a + q2=a
        OVER_LIMIT | OVER 0 of 1/MINUTE in 40s + OVER 0 of 2/MINUTE in 40s",
    )
    .await;
}

#[tokio::test]
async fn twenty_a_minute_sent_25_times_leaves_19_to_0_and_is_then_over_the_limit() {
    let file = "
domain: d
descriptors: [{ key: key2, rate_limit: { unit: minute, requests_per_unit: 20 } }]
";
    let rls = Rls::start(NO_RULES, &[file]).await;
    for sent in 0..25 {
        let left = 19 - sent;
        let expected = if left >= 0 {
            format!("OK | OK {left} of 20/MINUTE in 40s")
        } else {
            "OVER_LIMIT | OVER 0 of 20/MINUTE in 40s".to_owned()
        };
        assert_eq!(text::answer(&rls.ask("key2=random").await), expected);
    }
}

async fn play(rls: &Rls, says: &str, script: &str) {
    let mut lines = script.lines().map(str::trim).filter(|line| !line.is_empty());
    while let Some(line) = lines.next() {
        if let Some(millis) = line.strip_prefix("! ") {
            rls.clock.advance(Duration::from_millis(millis.parse().unwrap()));
            continue;
        }
        let request = line.strip_prefix("> ").unwrap();
        let (times, request) = match request.split_once("x ") {
            Some((times, rest)) if times.parse::<u32>().is_ok() => (times.parse().unwrap(), rest),
            _ => (1, request),
        };
        let mut answer = String::new();
        for _ in 0..times {
            answer = text::answer(&rls.ask(request).await);
        }
        let expected = lines.next().unwrap();
        assert_eq!(answer, expected, "{says}: {line}");
    }
}
