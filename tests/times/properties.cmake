# By table.txt: PROCESSORS, so that tests which wait run in parallel and those that compute do not, and COST, so that
# the longest begin first. A test that the table lacks has one processor and no cost; no result depends on it.
file(STRINGS ${CMAKE_CURRENT_LIST_DIR}/table.txt rows REGEX "^[a-z]")
foreach(row IN LISTS rows)
  string(REGEX MATCH "^([^ ]+) +([0-9]+)[.0-9]* +[0-9.]+ +([0-9]+)" match "${row}")
  set_tests_properties(${CMAKE_MATCH_1} PROPERTIES COST ${CMAKE_MATCH_2} PROCESSORS ${CMAKE_MATCH_3})
endforeach()
