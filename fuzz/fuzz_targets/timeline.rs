#![no_main]
#![doc = "The fuzz target `timeline`."]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tollgate_fuzz::timeline::check(data));
