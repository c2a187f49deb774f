// Package browser tests the operator's page of package admin in a real browser, Chromium. It holds nothing
// but tests, and is a module of its own because no other part of quotient needs a browser.
//
// Without Chromium the tests are skipped and print why, unless the environment variable QUOTIENT_REQUIRE, a
// list with commas, contains chromium: then they fail. The test of accessibility takes the rules of axe-core
// from the folder axe, into which npm fetches them. Without npm or a network it is skipped in the same way,
// unless the variable contains npm. What takes long runs with -all only, as in make browser. With
// -screenshots=DIR the tests also leave pictures of the page in that directory.
package browser
