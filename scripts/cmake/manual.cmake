# The pages of the manual that are installed: those of scripts/manual, where a line
#   See [TITLE](../../core/ir/README.md).
# is replaced by the section `## TITLE` of that file, so that nothing is written twice.
# Given: ORRERY_SOURCE, the source tree; ORRERY_MANUAL, the folder to write to.

function(orrery_section result file title)
  file(READ ${file} text)
  string(PREPEND text "\n")
  string(FIND "${text}" "\n## ${title}\n" begin)
  if(begin EQUAL -1)
    message(FATAL_ERROR "manual: ${file} has no section \"## ${title}\"")
  endif()
  math(EXPR begin "${begin} + 1")
  string(SUBSTRING "${text}" ${begin} -1 text)
  string(FIND "${text}" "\n## " end)
  string(SUBSTRING "${text}" 0 ${end} text)
  string(STRIP "${text}" text)
  set(${result} "${text}" PARENT_SCOPE)
endfunction()

function(orrery_manual_page page)
  file(READ ${ORRERY_SOURCE}/scripts/manual/${page} text)
  set(reference "See \\[([^]\n]+)\\]\\(\\.\\./\\.\\./([^)\n]+)\\)\\.\n")
  while("\n${text}" MATCHES "\n(${reference})")
    set(line "${CMAKE_MATCH_1}")
    orrery_section(section "${ORRERY_SOURCE}/${CMAKE_MATCH_3}" "${CMAKE_MATCH_2}")
    string(REPLACE "${line}" "${section}\n" text "${text}")
  endwhile()
  file(WRITE ${ORRERY_MANUAL}/${page} "${text}")
endfunction()

file(REMOVE_RECURSE ${ORRERY_MANUAL})
file(GLOB pages RELATIVE ${ORRERY_SOURCE}/scripts/manual ${ORRERY_SOURCE}/scripts/manual/*.md)
foreach(page IN LISTS pages)
  orrery_manual_page(${page})
endforeach()
